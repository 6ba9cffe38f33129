"""Base class of controllers: reducers that can read every configuration's FeedbackState."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from app.config import Parameter, RunSettings
from app.events import HandlerReducer, Payload, Row


def setting(name: str, value: float | str) -> str:
    """Name the setting of a rule that decided, with its value, for a decision's reason."""
    return f"({name} = {value if isinstance(value, str) else f'{value:g}'})"


class Origin(NamedTuple):
    """Source of a user-defined controller.

    Attributes:
        use: the class, as the settings name it.
        where: its table in the settings, its class and its file, for errors.
        digest: SHA-256 of the file; another version may decide differently.
    """

    use: str
    where: str
    digest: str


@dataclass(frozen=True)
class Controller(HandlerReducer):
    """Base of the feedback controllers: immutable, and built from the run's settings.

    For each event the host first updates FeedbackState, once for all controllers. Then it calls each controller's
    handler of the event with the controller's own rows, the event, and those states.

    A user-defined class gives ``emits``, ``row`` unless it needs no rows, and handlers. Its name is that of its
    table in the settings, and it sets the knobs that the table takes over.

    Attributes:
        row: the type of its rows.
        parameters: the parameters of training and self-play that it owns; only their owner may set them.
        origin: where it comes from, if it is user-defined and settings name it.
    """

    settings: RunSettings
    name: ClassVar[str]
    row: ClassVar[type[Any]] = Row
    emits: ClassVar[frozenset[type[Payload]]]
    parameters: ClassVar[frozenset[Parameter]] = frozenset()
    origin: ClassVar[Origin | None] = None

    def __post_init__(self) -> None:
        """Do nothing. A user-defined class may check its options here, and raise any error."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Options in the controller's table of the settings.

        Only a user-defined controller has such a table. Each call returns a copy, because otherwise a controller
        could change the run's settings.
        """
        return deepcopy(self.settings.controllers[self.name].options)
