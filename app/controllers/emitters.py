"""Emitters of events: the controller that concluded one, or the operator who published it.

An event does not name its controller. Its type does, where one controller alone emits it; otherwise its id does, which
derives from the controller's name (``follow``).
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flyball.app.config import KNOBS, PARAMETERS, Knob, Parameter, RunSettings
from flyball.app.controllers.curriculum import CurriculumIntegration
from flyball.app.controllers.gauntlet import GauntletFeedbackController
from flyball.app.controllers.learning_rate import EvaluationFeedbackHandler
from flyball.app.controllers.lifecycle import ModelLifecycleCoordinator
from flyball.app.controllers.loop import FeedbackLoopController
from flyball.app.controllers.loss_watch import LossWatch
from flyball.app.controllers.ownership import knob_of, knobs_set
from flyball.app.controllers.scheduler import SelfplayScheduler
from flyball.app.controllers.trigger import TrainingTrigger
from flyball.app.controllers.watchdog import ModelPerformanceWatchdog
from flyball.app.core import OBSERVER, derive_id
from flyball.app.events import (
    CheckpointAdded,
    CheckpointRetired,
    Envelope,
    Event,
    HyperparameterUpdated,
    Kind,
    MatchesRequested,
    MatchmakingUpdated,
    Payload,
)

COMMANDS = "cli"
"""Producer of the events that commands publish."""

MOST_EMISSIONS = 100
"""Emissions of a controller at one event among which an id is looked for."""


class Emitter(NamedTuple):
    """A built-in controller: its name, the types that it emits, and the parameters that it owns."""

    name: str
    emits: frozenset[type[Payload]]
    parameters: frozenset[Parameter] = frozenset()

    def may_emit(self, data: Payload) -> bool:
        """Return whether it emits such payloads. A parameter has one owner."""
        return type(data) in self.emits and (
            not isinstance(data, HyperparameterUpdated) or data.parameter in self.parameters
        )

    @property
    def knobs(self) -> frozenset[Knob]:
        """The knobs that it owns."""
        set_by_it = frozenset[Knob]().union(*map(knobs_set, self.emits))
        return (set_by_it - frozenset[Knob](PARAMETERS)) | self.parameters


LEAGUE_KEEPER = Emitter(
    "LeagueKeeper", frozenset({CheckpointAdded, CheckpointRetired, MatchesRequested, MatchmakingUpdated})
)
"""LeagueKeeper, which takes its name and types from here: its module imports NumPy, which takes a command's time."""

BUILT_IN: tuple[Emitter, ...] = (
    *(
        Emitter(controller.name, controller.emits, controller.parameters)
        for controller in (
            SelfplayScheduler,
            TrainingTrigger,
            FeedbackLoopController,
            GauntletFeedbackController,
            EvaluationFeedbackHandler,
            CurriculumIntegration,
            ModelPerformanceWatchdog,
            LossWatch,
            ModelLifecycleCoordinator,
        )
    ),
    LEAGUE_KEEPER,
)

OWNERS: Mapping[str, str] = {knob: emitter.name for emitter in BUILT_IN for knob in KNOBS if knob in emitter.knobs}
"""The built-in controller that owns each knob."""


def emitter_of(event: Event[Any], settings: RunSettings | None = None) -> str:
    """Return who emitted a recorded event; see ``emitter``."""
    return emitter(event.envelope, event.source, settings)


def emitter(envelope: Envelope[Any], source: str, settings: RunSettings | None) -> str:
    """Return the controller that concluded an event, or the operator who published it.

    Args:
        envelope: of any event.
        source: its producer, ``daemon@node``.
        settings: of the run; ``None``: unknown, and its user-defined controllers with them.

    Returns:
        A controller's name. ``operator`` with the producer's name in brackets, for decisions, requests and
        observations without a cause, or of a command: a scenario's remedy has a cause. ``the observed loop`` with the
        observer's name, for what files say. An empty string for what workers, hosts and the broker report. The daemon,
        if several of its controllers may have concluded the event.
    """
    data = envelope.data
    names = [built_in.name for built_in in BUILT_IN if built_in.may_emit(data)]
    if not names and data.kind is Kind.FACT:
        return ""
    host = source.partition("@")[0]
    if host == OBSERVER:
        return f"the observed loop ({source})"
    if envelope.causationid is None or host == COMMANDS:
        return f"operator ({source})"
    knob = knob_of(data)
    owner = settings.taken_over.get(knob) if settings and knob is not None else None
    candidates: list[str] = [*names, *(settings.controllers if settings else ())]
    if len(candidates) == 1:
        return candidates[0]
    # The id first, because the knob may have had another owner when the event was recorded.
    return _by_id(candidates, envelope) or owner or (names[0] if len(names) == 1 else host)


def _by_id(names: Iterable[str], envelope: Envelope[Any]) -> str | None:
    """Return the name that an event's id derives from; ``None`` if its cause is not the event that it names.

    It names evidence instead, where a tick has only set the time.
    """
    cause, indices = envelope.causationid or "", range(MOST_EMISSIONS)
    return next((name for name in names if any(derive_id(name, cause, at) == envelope.id for at in indices)), None)
