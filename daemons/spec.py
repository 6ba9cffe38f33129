"""The description of a daemon: what it reads, emits and runs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from flyball.app.bus import Bus
from flyball.app.config import RunFolder
from flyball.app.config.loading import Loaded
from flyball.app.controllers import Controller, FeedbackFold
from flyball.app.controllers.fold import Factory, Fold, Hosted
from flyball.app.events import Payload
from flyball.app.telemetry import RunCurves
from flyball.daemons.jobs import Worker, WorkerIdentity
from flyball.daemons.leases import Leases


class Companion(Protocol):
    """Something that a daemon does beside folding events. It publishes nothing."""

    def show(self, fold: Fold, head: int) -> None:
        """Take in the reducers' rows, which change after the call.

        The host calls this after each batch, once the daemon is ready. ``head`` is the position of the journal's last
        event.
        """

    async def run(self, bus: Bus) -> None:
        """Work until cancelled, from the daemon's start on. An error ends the daemon."""


@dataclass(frozen=True, slots=True)
class DaemonSpec:
    """Description of one daemon: its controllers, worker and sink.

    The worker has ``capacity`` jobs at once. With ``leases``, several such daemons share the worker's jobs; without,
    each runs all of them.

    Reducers that derive from ``Controller``, including workers, receive FeedbackState. A sink emits nothing. It
    receives each recorded event of the types that it reads at least once. One daemon ``hosts_own``: the controllers of
    the user's own that a run's settings name.

    Observers are reducers that decide nothing; a ``companion`` is shown their rows. Observers do not count as readers:
    an event that only they read leads nowhere.
    """

    name: str
    purpose: str
    controllers: tuple[type[Hosted], ...] = ()
    worker: type[Worker[Any]] | None = None
    leases: type[Leases] | None = None
    capacity: int = 0
    sink: type[RunCurves] | None = None
    hosts_own: bool = False
    observers: tuple[type[Hosted], ...] = ()
    companion: Callable[[Loaded, RunFolder], Companion] | None = None

    @property
    def hosted(self) -> tuple[type[Hosted], ...]:
        """All classes whose rows the daemon folds and saves: reducers and observers."""
        return (*self.reducers, *self.observers)

    @property
    def reducers(self) -> tuple[type[Hosted], ...]:
        """All reducer classes except observers; the fold of FeedbackState comes first if any receives it."""
        hosted = (*self.controllers, *(reducer for reducer in (self.worker, self.leases) if reducer))
        states = (FeedbackFold,) if any(issubclass(reducer, Controller) for reducer in hosted) else ()
        return cast("tuple[type[Hosted], ...]", (*states, *hosted))

    @property
    def reads(self) -> frozenset[type[Payload]]:
        """Payload types that the daemon's reducers, observers and sink read."""
        shown = self.sink.reads if self.sink else frozenset()
        return shown.union(*(reducer.reads for reducer in self.hosted))

    @property
    def emits(self) -> frozenset[type[Payload]]:
        """All payload types that the daemon's reducers emit."""
        return frozenset().union(*(reducer.emits for reducer in self.reducers))

    def factories(self, identity: WorkerIdentity) -> tuple[Factory, ...]:
        """Return the functions that build the reducers from a run's settings."""
        workers = (partial(self.worker, identity=identity),) if self.worker else ()
        leases = (self.leases,) if self.leases else ()  # last, because leases follow the worker's rows
        return cast("tuple[Factory, ...]", (*self.controllers, *workers, *leases, *self.observers))
