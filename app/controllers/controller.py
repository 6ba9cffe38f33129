"""Controllers: reducers that are also shown the FeedbackState of every configuration, read-only."""

from dataclasses import dataclass
from typing import Any, ClassVar

from app.config import RunSettings
from app.events import HandlerReducer, Parameter, Payload


@dataclass(frozen=True)
class Controller(HandlerReducer):
    """Base of the feedback controllers. Built from the run's settings, it holds nothing that changes.

    Its host folds FeedbackState from each event first, once for all controllers. Then each controller's handler of the
    event is called with the controller's own rows, the event, and those states.

    Attributes:
        row: the type of its rows.
        parameters: the parameters of training and self-play that it owns; only their owner may set them.
    """

    settings: RunSettings
    name: ClassVar[str]
    row: ClassVar[type[Any]]
    emits: ClassVar[frozenset[type[Payload]]]
    parameters: ClassVar[frozenset[Parameter]] = frozenset()
