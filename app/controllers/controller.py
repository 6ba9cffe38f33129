"""Base class of controllers: reducers that can read every configuration's FeedbackState."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal, NamedTuple

from flyball.app.config import Parameter, RunSettings
from flyball.app.events import HandlerReducer, Payload, Row

Unit = Literal["", "Elo", "%", "rows"]


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


class Watched(NamedTuple):
    """A quantity that one of a controller's rules compares with a threshold.

    Attributes:
        what: the quantity, in words.
        value: its value now; ``None`` if it is unknown.
        threshold: the rule acts at this value.
        acts: on which side of the threshold the rule acts.
        effect: what the rule does then, in words.
        setting: the setting of the threshold, as a dotted key; empty if it has none.
        unit: of value and threshold. A share is shown in percent.
        waits: what else the rule waits for, in words; empty if for nothing.
        until: when the rule will probably decide, if it waits for a time, or for ratings at their present rate; it may
            be past. ``None``: it does not wait, or nobody knows.
    """

    what: str
    value: float | None
    threshold: float
    acts: Literal["above", "below"]
    effect: str
    setting: str = ""
    unit: Unit = ""
    waits: str = ""
    until: datetime | None = None

    @property
    def progress(self) -> float | None:
        """How near the value is to the threshold, from 0 to 1 at the threshold and beyond; ``None`` if unknown.

        A rule that acts above 0, or below a negative threshold, is half way at half of the threshold. One that acts
        below a positive threshold is half way at twice the threshold.
        """
        if self.value is None:
            return None
        if self.value >= self.threshold if self.acts == "above" else self.value <= self.threshold:
            return 1.0
        low, high = sorted((self.value, self.threshold), key=abs)
        return low / high if low * high > 0 else 0.0


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

    def watches(self, rows: Mapping[str, Any], states: Mapping[str, Any], key: str) -> Sequence[Watched]:
        """Return what the rules about a configuration compare now. Only displays call it; nothing by default.

        Args:
            rows: the controller's own.
            states: the FeedbackState of every configuration.
            key: of the configuration.
        """
        return ()

    @property
    def options(self) -> Mapping[str, Any]:
        """Options in the controller's table of the settings.

        Only a user-defined controller has such a table. Each call returns a copy, because otherwise a controller
        could change the run's settings.
        """
        return deepcopy(self.settings.controllers[self.name].options)
