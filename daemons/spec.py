"""The description of a daemon: what it reads, emits and runs."""

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from app.controllers import Controller, FeedbackFold
from app.controllers.fold import Factory, Hosted
from app.events import Payload
from app.telemetry import TensorBoardCurves
from daemons.jobs import Place, Worker


@dataclass(frozen=True, slots=True)
class DaemonSpec:
    """One daemon: controllers decide, a worker has jobs run, ``capacity`` of them at once, a sink shows what it reads.

    Those that derive from ``Controller``, workers too, are shown FeedbackState.
    Sinks emit nothing; they receive each recorded event that they read at least once.
    """

    name: str
    purpose: str
    controllers: tuple[type[Hosted], ...] = ()
    worker: type[Worker[Any]] | None = None
    capacity: int = 0
    sink: type[TensorBoardCurves] | None = None

    @property
    def reducers(self) -> tuple[type[Hosted], ...]:
        """All reducer classes of the daemon; where they are shown FeedbackState, its fold comes first."""
        hosted = (*self.controllers, *((self.worker,) if self.worker else ()))
        states = (FeedbackFold,) if any(issubclass(one, Controller) for one in hosted) else ()
        return cast("tuple[type[Hosted], ...]", (*states, *hosted))

    @property
    def reads(self) -> frozenset[type[Payload]]:
        """All payload types that the daemon's reducers and its sink read."""
        shown = self.sink.reads if self.sink else frozenset()
        return shown.union(*(reducer.reads for reducer in self.reducers))

    @property
    def emits(self) -> frozenset[type[Payload]]:
        """All payload types that the daemon's reducers emit."""
        return frozenset().union(*(reducer.emits for reducer in self.reducers))

    def factories(self, place: Place) -> tuple[Factory, ...]:
        """Return what builds the reducers from a run's settings."""
        workers = (partial(self.worker, place=place),) if self.worker else ()
        return cast("tuple[Factory, ...]", (*self.controllers, *workers))
