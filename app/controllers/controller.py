"""Controllers: reducers that are also shown the FeedbackState of every configuration, read-only."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from app.config import RunSettings
from app.controllers.state import FeedbackState
from app.events import AnyRow, Event, Parameter, Payload, Step

R = TypeVar("R", bound=AnyRow)


@dataclass(frozen=True)
class Controller(ABC, Generic[R]):
    """Base of the feedback controllers. Built from the run's settings, it holds nothing that changes.

    Its host folds FeedbackState from each event first, once for all controllers, then gives each controller the event,
    its own rows and those states.

    Attributes:
        parameters: the parameters of training and self-play that it owns; of others it may not say that they are set.
    """

    settings: RunSettings
    name: ClassVar[str]
    reads: ClassVar[frozenset[type[Payload]]]
    emits: ClassVar[frozenset[type[Payload]]]
    row: ClassVar[type[Any]]
    parameters: ClassVar[frozenset[Parameter]] = frozenset()

    @abstractmethod
    def step(self, rows: Mapping[str, R], event: Event[Payload], states: Mapping[str, FeedbackState]) -> Step[R]:
        """Fold one event. Pure: time is ``event.recordedtime``; there is no other."""
