"""Reports of a run: trainings, strength gained, decisions by controller, and shares of the worker time. Pure.

A report covers a run, or its events after a position.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any

from flyball.app.config import RunSettings
from flyball.app.controllers.state import FeedbackState, WorkerTime, state_of
from flyball.app.core import HASH_DIGITS, ConfigKey, Elo, ModelHash, is_observer
from flyball.app.events import (
    CurriculumRebalanced,
    DaemonStarted,
    EvaluationCompleted,
    Event,
    ExplorationBoost,
    ModelPromoted,
    ModelRolledBack,
    PlateauDetected,
    PromotionRejected,
    RunConfigured,
    SelfplayComplete,
    TrainingCompleted,
)
from flyball.app.events.frames import DeadLetter
from flyball.app.events.rows import Row
from flyball.app.journal import JournalReader, history
from flyball.app.journal.history import voided_events
from flyball.app.replay.controller_reports import ControllerReports, is_initial
from flyball.app.replay.divergences import WORK
from flyball.app.replay.replaying import all_settings
from flyball.app.status.status import READS, Board, Status

APART = 0.05
"""Difference between the share of time that was spent and that asked for, from which on it is explained."""

MOST_NAMED = 8
"""Models that a sentence names."""

WHY_APART = (
    "a configuration wants few games or none while its own model is trained and rated, and others have the workers "
    "meanwhile"
)


class Rated(Row, frozen=True):
    """A rating at a time; ``stderr`` is its standard error."""

    time: datetime
    elo: Elo
    stderr: float


class ConfigReport(Row, frozen=True):
    """Counts and ratings of a configuration in the time of the report.

    Attributes:
        elo_before, elo_before_stderr: its rating at the beginning, otherwise its first one; ``None`` without any.
        elo, elo_stderr: its rating at the end; see ``Lineage.rating``.
        games, rows: of self-play.
        trainings: completed ones; the initial model's training and promotion count nowhere.
        promotions, rejections: verdicts on trained models, operators' included. A model that an operator makes current
            without a training is no promotion here, but one of ``RunReport.decided``.
        dropped, dropped_models: trained models that got no verdict, because another model became current meanwhile.
        awaiting: trained models whose verdict is still to come.
        boosts: number of times that exploration was raised.
        weight_before, weight: its curriculum weight at the beginning and at the end.
        asked: share of worker time that its weights asked for: its share of all weights, averaged over the worker time
            that was spent under them.
        worker_time: seconds of workers spent on it.
    """

    key: ConfigKey
    elo_before: float | None
    elo_before_stderr: float | None
    elo: float | None
    elo_stderr: float | None
    games: int
    rows: int
    trainings: int
    promotions: int
    rejections: int
    dropped: int
    awaiting: int
    rollbacks: int
    boosts: int
    stalls: int
    weight_before: float
    weight: float
    plateaued: bool
    asked: float
    worker_time: WorkerTime
    dropped_models: tuple[ModelHash, ...]


class RunReport(Row, frozen=True):
    """A report of a run.

    Attributes:
        first, last: times of the first and the last event.
        events: number of events.
        nodes: machines whose daemons started.
        configs: what happened to each configuration; last those that the run no longer plays.
        decided: by controller, or by operator, the number of decisions and observations by event name, without the
            initial model's promotion.
        attention: what an operator should look at.
        advises: the run asked for nothing.
    """

    first: datetime | None
    last: datetime | None
    events: int
    nodes: tuple[str, ...]
    configs: tuple[ConfigReport, ...]
    decided: dict[str, dict[str, int]]
    attention: tuple[str, ...]
    advises: bool = False

    @property
    def seconds(self) -> float:
        """Seconds from the first event to the last one."""
        return 0.0 if self.first is None or self.last is None else (self.last - self.first).total_seconds()

    @property
    def worker_seconds(self) -> float:
        """Seconds of workers, of all configurations."""
        return sum(config.worker_time.total for config in self.configs)

    @property
    def evaluation_share(self) -> float:
        """Share of the worker time that evaluations took."""
        return sum(config.worker_time.evaluation for config in self.configs) / (self.worker_seconds or 1.0)

    def time_share(self, config: ConfigReport) -> float:
        """Return a configuration's share of the worker time."""
        return config.worker_time.total / (self.worker_seconds or 1.0)

    @property
    def dropped_text(self) -> str:
        """A sentence that names the trained models without a verdict; empty without any."""
        named = [f"{model[:HASH_DIGITS]} of {config.key}" for config in self.configs for model in config.dropped_models]
        more = [f"{len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
        return f"Dropped without a verdict: {', '.join(named[:MOST_NAMED] + more)}." if named else ""

    @property
    def apart(self) -> str:
        """A sentence on configurations whose time is far from what was asked, and why; empty without any."""
        shares = [(config.key, self.time_share(config), config.asked) for config in self.configs]
        had = [
            f"{key} had {time:.0%} for {asked:.0%} asked" for key, time, asked in shares if abs(time - asked) > APART
        ]
        if not had or self.advises or not self.worker_seconds:
            return ""
        return f"Of the workers' time {', '.join(had)}, because {WHY_APART}."


class RunReports:
    """Folds events into a report.

    Args:
        past: the run's settings, which name its user-defined controllers.
        voided: positions of events to leave out.
        after: the report covers the events after this position.

    Attributes:
        controllers: reports of the controllers.
        ratings: each configuration's ratings, in order of time.
    """

    def __init__(self, past: Sequence[RunSettings] = (), voided: Collection[int] = (), *, after: int = 0) -> None:
        self.controllers, self._after = ControllerReports(past, voided), after
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._decided: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._before: dict[str, FeedbackState] | None = None
        self.ratings: defaultdict[str, list[Rated]] = defaultdict(list)
        self._without_verdict: defaultdict[str, set[ModelHash]] = defaultdict(set)
        self._asked: defaultdict[str, float] = defaultdict(float)
        self._spent = 0.0
        self._nodes: set[str] = set()
        self._first: datetime | None = None
        self._last: datetime | None = None
        self._events = 0

    def take(self, event: Event[Any]) -> None:
        """Fold the next event."""
        if event.sequence <= self._after:
            self.controllers.take(event)
            return
        if self._before is None:
            self._before, self._spent = dict(self.controllers.states), self._spent_seconds()
        if isinstance(event.data, CurriculumRebalanced | RunConfigured):  # the weights change
            self._asked, self._spent = self._asked_seconds(), self._spent_seconds()
        self._note(event)
        self._count(event)
        by = self.controllers.take(event)
        if by and type(event.data) not in WORK and not is_initial(event.data):
            self._decided[by][event.data.event_name] += 1

    def _note(self, event: Event[Any]) -> None:
        """Note an event's time, and the games, ratings and machines that it reports."""
        counts = self._counts[event.subject]
        self._events += 1
        self._first, self._last = self._first or event.recordedtime, event.recordedtime
        match event.data:
            case SelfplayComplete(shard=shard):
                counts["games"] += shard.games
                counts["rows"] += shard.rows
            case EvaluationCompleted(purpose="rating", elo=elo, elo_stderr=stderr):
                self.ratings[event.subject].append(Rated(time=event.recordedtime, elo=elo, stderr=stderr))
            case DaemonStarted(node=node):
                self._nodes.add(node)

    def _count(self, event: Event[Any]) -> None:
        """Count the trainings and decisions of an event that is not folded yet."""
        key, counts = event.subject, self._counts[event.subject]
        state, waiting = state_of(self.controllers.states, key), self._without_verdict[key]
        match event.data:
            case data if is_initial(data):
                return
            case TrainingCompleted(model=model):
                counts["trainings"] += 1
                waiting.add(model)
            case ModelPromoted(model=model) | PromotionRejected(model=model):
                # A candidate trained before the report's time is in the lineage alone.
                verdict = "promotions" if isinstance(event.data, ModelPromoted) else "rejections"
                counts[verdict] += model in waiting or state.lineage.is_trial(model) or is_observer(event.source)
                waiting.discard(model)
            case ModelRolledBack():
                counts["rollbacks"] += 1
            case PlateauDetected():
                counts["stalls"] += 1
            case ExplorationBoost(multiplier=multiplier):
                counts["boosts"] += multiplier > state.exploration_boost

    def report(self, status: Status | None) -> RunReport:
        """Return the report so far. The run's status names what an operator should look at."""
        settings = self.controllers.settings
        keys = [config.key for config in settings.configs] if settings else []
        dropped = [ConfigKey(key) for key in sorted(self.controllers.states.keys() - set(keys))]
        waiting = [config for config in status.configs if config.waiting_for] if status else []
        asked = self._asked_seconds()
        total = sum(asked.values()) or 1.0
        return RunReport(
            first=self._first,
            last=self._last,
            events=self._events,
            nodes=tuple(sorted(self._nodes)),
            configs=tuple(self._config(key, asked[key] / total) for key in (*keys, *dropped)),
            decided={by: dict(sorted(counts.items())) for by, counts in sorted(self._decided.items())},
            attention=tuple(f"{config.key}: {config.waiting_for}" for config in waiting),
            advises=settings is not None and settings.advises,
        )

    def _spent_seconds(self) -> float:
        """Return the worker time of all configurations so far."""
        return sum(state.worker_time.total for state in self.controllers.states.values())

    def _asked_seconds(self) -> defaultdict[str, float]:
        """Return the worker time that the weights asked for, by configuration."""
        settings, asked = self.controllers.settings, self._asked.copy()
        keys = [config.key for config in settings.configs] if settings else []
        weights = {key: state_of(self.controllers.states, key).curriculum_weight for key in keys}
        spent, total = self._spent_seconds() - self._spent, sum(weights.values())
        for key, weight in weights.items():
            asked[key] += spent * weight / total
        return asked

    def _config(self, key: ConfigKey, asked: float) -> ConfigReport:
        states = self.controllers.states
        before = state_of(states if self._before is None else self._before, key)
        state = state_of(states, key)
        counts, rated = self._counts[key], self.ratings.get(key)
        undecided = self._without_verdict[key]
        pending = undecided & {state.lineage.candidate, state.lineage.unrated}
        elo, stderr = state.lineage.rating(state.elo_current, state.elo_stderr)
        elo_before, stderr_before = before.lineage.rating(before.elo_current, before.elo_stderr)
        if elo_before is None and rated:
            elo_before, stderr_before = rated[0].elo, rated[0].stderr
        return ConfigReport(
            key=key,
            elo_before=elo_before,
            elo_before_stderr=stderr_before,
            elo=elo,
            elo_stderr=stderr,
            games=counts["games"],
            rows=counts["rows"],
            trainings=counts["trainings"],
            promotions=counts["promotions"],
            rejections=counts["rejections"],
            dropped=len(undecided - pending),
            dropped_models=tuple(sorted(undecided - pending)),
            awaiting=len(pending),
            rollbacks=counts["rollbacks"],
            boosts=counts["boosts"],
            stalls=counts["stalls"],
            weight_before=before.curriculum_weight,
            weight=state.curriculum_weight,
            plateaued=state.plateaued,
            asked=asked,
            worker_time=state.worker_time.less(before.worker_time),
        )


def fold_report(
    reader: JournalReader, on_dead: Callable[[DeadLetter], None], *, after: int = 0
) -> tuple[RunReports, Status | None]:
    """Fold a journal into the report of the events after a position, and the run's status."""
    voided = voided_events(reader)
    folded, board = RunReports(all_settings(reader), voided.keys(), after=after), Board()
    last: datetime | None = None
    for event in history(reader, on_dead=on_dead):
        if event.sequence in voided:
            continue
        folded.take(event)
        last = event.recordedtime
        if type(event.data) in READS:
            board.feed((event,))
    return folded, None if last is None else board.status(last, None, running=True)


def read_report(reader: JournalReader, on_dead: Callable[[DeadLetter], None], *, after: int = 0) -> RunReport:
    """Return the report of a journal's events after a position."""
    folded, status = fold_report(reader, on_dead, after=after)
    return folded.report(status)
