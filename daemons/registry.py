"""The daemon registry: every daemon there is, and what runs in it (ADR-009)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from app.controllers import (
    Controller,
    CurriculumIntegration,
    EvaluationFeedbackHandler,
    FeedbackFold,
    FeedbackLoopController,
    GauntletFeedbackController,
    LeagueKeeper,
    LossWatch,
    ModelLifecycleCoordinator,
    ModelPerformanceWatchdog,
    SelfplayScheduler,
    TrainingTrigger,
)
from app.controllers.fold import Factory, Hosted
from app.core import BROKER, FlyballError
from app.events import Payload
from app.telemetry import TensorBoardCurves
from daemons.distribution import Distributor
from daemons.evaluation import Evaluator
from daemons.jobs import Place, QuietWorker
from daemons.quality_monitor import QualityMonitor
from daemons.selfplay_worker import SelfplayWorker
from daemons.training import Trainer


class UnknownDaemon(FlyballError):
    """No daemon has this name."""


@dataclass(frozen=True, slots=True)
class DaemonSpec:
    """One daemon: controllers decide, a worker has jobs run, ``capacity`` of them at once, a sink shows what it reads.

    Controllers may be plain reducers; those of ``app.controllers`` also see FeedbackState.
    Sinks conclude nothing: whatever they read is recorded, and they are told of it at least once.
    """

    name: str
    purpose: str
    controllers: tuple[type[Hosted], ...] = ()
    worker: type[QuietWorker[Any]] | None = None
    capacity: int = 0
    sink: type[TensorBoardCurves] | None = None

    @property
    def reducers(self) -> tuple[type[Hosted], ...]:
        """All reducer classes of the daemon; where controllers see FeedbackState, that comes first."""
        states = (FeedbackFold,) if any(issubclass(one, Controller) for one in self.controllers) else ()
        workers = (self.worker,) if self.worker else ()
        return cast("tuple[type[Hosted], ...]", (*states, *self.controllers, *workers))

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
        return cast("tuple[Factory, ...]", (*self.reducers[: -1 if self.worker else None], *workers))


FEEDBACK: tuple[type[Hosted], ...] = (
    FeedbackLoopController,
    GauntletFeedbackController,
    EvaluationFeedbackHandler,
    CurriculumIntegration,
    ModelPerformanceWatchdog,
    LossWatch,
)

LIFECYCLE: tuple[type[Hosted], ...] = (ModelLifecycleCoordinator, LeagueKeeper)

DAEMONS: Mapping[str, DaemonSpec] = {
    spec.name: spec
    for spec in (
        DaemonSpec(BROKER, "records every event, hands each to those who read it, ticks"),
        DaemonSpec("selfplay_scheduler", "decides which configuration plays next", (SelfplayScheduler,)),
        DaemonSpec("selfplay_worker", "plays games", worker=SelfplayWorker, capacity=1),
        DaemonSpec("quality_monitor", "inspects every shard of experience", worker=QualityMonitor, capacity=1),
        DaemonSpec("training_trigger", "decides when a configuration trains", (TrainingTrigger,)),
        DaemonSpec("training", "trains models", worker=Trainer, capacity=1),
        DaemonSpec("evaluation", "plays every new model's gauntlet", worker=Evaluator, capacity=1),
        DaemonSpec("feedback", "runs the feedback controllers", FEEDBACK),
        DaemonSpec("model_lifecycle", "decides which model is current, and who is in the league", LIFECYCLE),
        DaemonSpec("curves", "draws the curves of training and evaluation", sink=TensorBoardCurves),
        DaemonSpec("distribution", "brings promoted models to the nodes", worker=Distributor, capacity=1),
    )
}


def spec_of(name: str) -> DaemonSpec:
    """Find a daemon. Raises ``UnknownDaemon``, which lists those there are."""
    if name not in DAEMONS:
        raise UnknownDaemon(f"There is no daemon {name!r}.", hint=f"There are: {', '.join(DAEMONS)}.")
    return DAEMONS[name]


def start_order() -> tuple[str, ...]:
    """Return the daemons in the order in which starting them is quickest. Any other order works as well."""
    return tuple(DAEMONS)
