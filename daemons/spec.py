"""The description of a daemon: what it reads, emits and runs."""

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from app.controllers import Controller, FeedbackFold
from app.controllers.fold import Factory, Hosted
from app.events import Payload
from app.telemetry import RunCurves
from daemons.jobs import Worker, WorkerPlace
from daemons.leases import Leases


@dataclass(frozen=True, slots=True)
class DaemonSpec:
    """Description of one daemon: its controllers, worker and sink. The worker has ``capacity`` jobs at once.

    With ``leases``, several such daemons share the worker's jobs; without, each runs all of them.
    Reducers that derive from ``Controller``, including workers, receive FeedbackState.
    A sink emits nothing. It receives each recorded event of the types that it reads at least once.
    One daemon ``hosts_own``: the controllers of the user's own that a run's settings name.
    """

    name: str
    purpose: str
    controllers: tuple[type[Hosted], ...] = ()
    worker: type[Worker[Any]] | None = None
    leases: type[Leases] | None = None
    capacity: int = 0
    sink: type[RunCurves] | None = None
    hosts_own: bool = False

    @property
    def reducers(self) -> tuple[type[Hosted], ...]:
        """All reducer classes of the daemon. If one of them receives FeedbackState, its fold comes first."""
        hosted = (*self.controllers, *(one for one in (self.worker, self.leases) if one))
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

    def factories(self, place: WorkerPlace) -> tuple[Factory, ...]:
        """Return the functions that build the reducers from a run's settings."""
        workers = (partial(self.worker, place=place),) if self.worker else ()
        leases = (self.leases,) if self.leases else ()  # last, because leases follow the worker's rows
        return cast("tuple[Factory, ...]", (*self.controllers, *workers, *leases))
