"""Controllers: reducers that are also shown the FeedbackState of every configuration, read-only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from app.config import RunSettings
from app.controllers.state import States
from app.events import Event, HandlerReducer, Parameter, Payload, Row, Step

R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Controller(HandlerReducer, Generic[R]):
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

    def step(self, rows: Mapping[str, Any], event: Event[Payload], states: States) -> Step[Any]:
        """Fold one event. Pure: time is ``event.recordedtime``; there is no other."""
        return self.handle(rows, event, states)
