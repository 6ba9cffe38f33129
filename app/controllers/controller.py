"""Base class of controllers: reducers that can read every configuration's FeedbackState."""

from dataclasses import dataclass
from typing import Any, ClassVar

from app.config import Parameter, RunSettings
from app.events import HandlerReducer, Payload


@dataclass(frozen=True)
class Controller(HandlerReducer):
    """Base of the feedback controllers: immutable, and built from the run's settings.

    For each event the host first updates FeedbackState, once for all controllers. Then it calls each controller's
    handler of the event with the controller's own rows, the event, and those states.

    Attributes:
        row: the type of its rows.
        parameters: the parameters of training and self-play that it owns; only their owner may set them.
    """

    settings: RunSettings
    name: ClassVar[str]
    row: ClassVar[type[Any]]
    emits: ClassVar[frozenset[type[Payload]]]
    parameters: ClassVar[frozenset[Parameter]] = frozenset()
