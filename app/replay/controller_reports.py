"""Reports of controllers: watched values, knobs, decisions, and the ratings that followed. Pure.

Controllers that watch something are folded, because what a rule watches is partly in its own rows. The others are not,
because the scheduler's fold alone would take as long as all the rest.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flyball.app.config import KNOBS, Knob, RunSettings
from flyball.app.controllers.controller import Controller, Watched
from flyball.app.controllers.emitters import OWNERS, emitter_of
from flyball.app.controllers.fold import Fold, is_named, own_name
from flyball.app.controllers.state import States, state_of
from flyball.app.events import (
    EvaluationCompleted,
    Event,
    ModelPromoted,
    ModelRolledBack,
    NodeQuarantined,
    NodeReleased,
    Payload,
    RunConfigured,
    TrainingCompleted,
    TrainingRequested,
)
from flyball.app.events.frames import DeadLetter
from flyball.app.journal import JournalReader, history
from flyball.app.journal.history import voided_events
from flyball.app.replay.divergences import WORK
from flyball.app.replay.replaying import all_settings
from flyball.daemons.registry import daemons_of

LISTED = 20
"""Latest decisions that are kept for each controller and configuration."""

CAUSES = 1000
"""Latest events among which a quarantine's cause is looked for."""


@dataclass(slots=True)
class Decision:
    """A controller's recorded decision or observation.

    Attributes:
        event: the recorded event.
        elo_before: the champion's rating at that time; ``None`` if unknown, or if the event is about the run. A
            quarantine is about the configuration whose games brought it.
        elo_after: the champion's next other rating, or that of the champion which the event made; ``None`` before it.
        released: the end of the quarantine that the event began, whoever decided it.
    """

    event: Event[Any]
    elo_before: float | None
    elo_after: float | None = None
    released: Event[NodeReleased] | None = None


class ControllerReport(NamedTuple):
    """A controller, as displays show it.

    Attributes:
        name: of the controller.
        does: the first line of its documentation.
        knobs: that it owns.
        watched: what its rules compare now, by configuration.
        trouble: why that cannot be shown, or why a user-defined controller does not take part; empty if all is well.
        counts: the number of its recorded events, by event name; requests included, but not those of initial models.
        decisions: the latest decisions and observations, the latest first. Work, such as requests, is left out.
    """

    name: str
    does: str
    knobs: tuple[Knob, ...]
    watched: Mapping[str, Sequence[Watched]]
    trouble: str
    counts: Mapping[str, int]
    decisions: tuple[Decision, ...]


class ControllerReports:
    """Reports of all controllers, folded from a run's events.

    Args:
        past: the run's settings, which name its user-defined controllers.
        voided: positions of events to leave out.
    """

    def __init__(self, past: Sequence[RunSettings] = (), voided: Collection[int] = ()) -> None:
        daemons = daemons_of(*past)
        hosted = [kind for spec in daemons.values() for kind in spec.controllers if issubclass(kind, Controller)]
        self._hosted = tuple(hosted)
        self._fold = Fold([kind for kind in hosted if _is_folded(kind)], voided=voided)
        self._emitted = frozenset[type[Payload]]().union(*(kind.emits for kind in hosted))
        self.reads: frozenset[type[Payload]] = self._emitted.union(
            {RunConfigured}, *(controller.reads for controller in hosted)
        )
        self._unbuilt: dict[str, str] = {}
        self._counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._decisions: defaultdict[tuple[str, str], deque[Decision]] = defaultdict(lambda: deque(maxlen=LISTED))
        self._recent = deque[tuple[str, str]](maxlen=CAUSES)  # ids of events, and the configurations they are about
        self._quarantines: dict[str, tuple[str, Decision]] = {}  # by worker, with the configuration that brought it

    def take(self, event: Event[Any]) -> str:
        """Fold the next event; return who emitted it, see ``emitter_of``.

        Voided events and types that are not in ``reads`` change nothing.
        """
        if type(event.data) not in self.reads or event.sequence in self._fold.voided:
            return ""
        self._recent.append((event.id, event.subject))
        before = self._champion_elo(about := self._about(event))
        failures = self._fold.feed((event,)).failures
        if isinstance(event.data, RunConfigured):
            self._unbuilt = {failure.by: failure.error for failure in failures}
        by = ""
        if type(event.data) in self._emitted:
            by = emitter_of(event, self._fold.settings)
            self._record(by, event, about, before)
        if isinstance(event.data, EvaluationCompleted | ModelPromoted | ModelRolledBack):
            elo = self._champion_elo(event.subject)
            for controller in self._hosted:
                for decision in self._decisions.get((controller.name, event.subject), ()):
                    if decision.elo_after is None and elo != decision.elo_before:
                        decision.elo_after = elo
        return by

    def _champion_elo(self, key: str) -> float | None:
        """Return the rating of a configuration's champion; ``None`` if it is unknown, or without a configuration."""
        state = state_of(self._fold.states, key) if key else None
        return None if state is None else state.lineage.rating(state.elo_current, state.elo_stderr)[0]

    def _record(self, by: str, event: Event[Any], key: str, elo: float | None) -> None:
        if not is_initial(event.data):
            self._counts[by, key][event.data.event_name] += 1
        if type(event.data) in WORK:
            return
        decision = Decision(event, elo)
        self._decisions[by, key].append(decision)
        if isinstance(event.data, NodeQuarantined):
            self._quarantines.setdefault(event.data.worker, (key, decision))  # a bad probe only makes it longer
        elif isinstance(event.data, NodeReleased) and (begun := self._quarantines.pop(event.data.worker, None)):
            begun[1].released = event

    def _about(self, event: Event[Any]) -> str:
        """Return the configuration that a decision is about, empty if it is about the run.

        A quarantine and its end are about the one whose games brought it.
        """
        match event.data:
            case NodeQuarantined(worker=worker) | NodeReleased(worker=worker) if worker in self._quarantines:
                return self._quarantines[worker][0]
            case NodeQuarantined():
                return dict(self._recent).get(str(event.envelope.causationid), "")
        return event.subject

    @property
    def settings(self) -> RunSettings | None:
        """The run's settings; ``None`` before its first event."""
        return self._fold.settings

    @property
    def states(self) -> States:
        """FeedbackState of every configuration."""
        return self._fold.states

    def reports(self, keys: Sequence[str] | None = None) -> tuple[ControllerReport, ...]:
        """Return the reports about these configurations, by default about all.

        Decisions about the run, such as the curriculum's weights, are always included.
        """
        settings = self._fold.settings
        if settings is None:
            return ()
        shown = tuple(config.key for config in settings.configs if keys is None or config.key in keys)
        return tuple(
            self._report(kind, settings, shown)
            for kind in self._hosted
            if own_name(kind) is None or is_named(kind, settings)
        )

    def _report(self, kind: type[Controller], settings: RunSettings, keys: Sequence[str]) -> ControllerReport:
        name, about = kind.name, (*keys, "")
        decisions = [decision for key in about for decision in self._decisions.get((name, key), ())]
        decisions.sort(key=lambda decision: decision.event.sequence, reverse=True)
        watched, trouble = self._watched(kind, keys)
        return ControllerReport(
            name=name,
            does=(kind.__doc__ or "").partition("\n")[0].replace("``", ""),
            knobs=knobs_owned(kind, settings),
            watched=watched,
            trouble=trouble,
            counts=sum((self._counts.get((name, key), Counter()) for key in about), Counter[str]()),
            decisions=tuple(decisions[:LISTED]),
        )

    def _watched(self, kind: type[Controller], keys: Sequence[str]) -> tuple[Mapping[str, Sequence[Watched]], str]:
        """Return what a controller watches, by configuration, and why that cannot be shown."""
        nothing: dict[str, Sequence[Watched]] = dict.fromkeys(keys, ())
        if kind.name in self._unbuilt:
            return nothing, f"It does not take part. {self._unbuilt[kind.name]}"
        controller = next((hosted for hosted in self._fold.reducers if hosted.name == kind.name), None)
        if not isinstance(controller, Controller):  # it watches nothing, so it is not folded
            return nothing, ""
        rows, states = self._fold.rows(kind.name), self._fold.states
        try:
            return {key: tuple(controller.watches(rows, states, key)) for key in keys}, ""
        except Exception as error:  # noqa: BLE001 - of a user-defined controller; the other reports must not suffer
            return nothing, f"What it watches cannot be shown. {type(error).__name__}: {error}"


def read_reports(reader: JournalReader, on_dead: Callable[[DeadLetter], None]) -> ControllerReports:
    """Fold a journal into the reports of its run's controllers."""
    folded = ControllerReports(all_settings(reader), voided_events(reader).keys())
    for event in history(reader, types=folded.reads, on_dead=on_dead):
        folded.take(event)
    return folded


def is_initial(data: Payload) -> bool:
    """Return whether an event is about the making of a configuration's initial model, which no display counts."""
    match data:
        case TrainingRequested(base_model=None) | TrainingCompleted(parent=None, step=0) | ModelPromoted(previous=None):
            return True
    return False


def knobs_owned(controller: type[Controller], settings: RunSettings) -> tuple[Knob, ...]:
    """Return the knobs that a controller owns in a run. User-defined controllers may have taken some over."""
    if own_name(controller) is not None:
        return settings.controllers[controller.name].takes_over
    return tuple(knob for knob in KNOBS if OWNERS[knob] == controller.name and knob not in settings.taken_over)


def _is_folded(kind: type[Controller]) -> bool:
    """Return whether a controller shows something of its rows, or may fail to be built."""
    return kind.watches is not Controller.watches or own_name(kind) is not None
