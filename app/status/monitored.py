"""Rows of which metrics are made, folded by reducers that decide nothing.

The daemon ``monitoring`` hosts the reducers, so the rows outlive it: a counter continues where it was, and the same
journal gives the same figures.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from msgspec import field

from flyball.app.config import RunSettings
from flyball.app.core import SECOND_US
from flyball.app.events import (
    CATALOGUE,
    DistributionFailed,
    EvaluationCompleted,
    EvaluationFailed,
    EvaluationRequested,
    Event,
    InspectionFailed,
    MatchesRequested,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    NodeProbed,
    Payload,
    QualityDegraded,
    QualityScoreUpdated,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
    Step,
    TrainingCompleted,
    TrainingFailed,
    TrainingRequested,
)
from flyball.app.events.rows import Row
from flyball.app.status.configs import CONFIGS_READ, ConfigRow, fold_configs
from flyball.app.status.status import DAEMONS_READ, DaemonRow, fold_daemons

JobOutcome = Literal["completed", "failed"]

RESULTS: Mapping[type[Payload], tuple[str, JobOutcome]] = {
    SelfplayComplete: ("selfplay", "completed"),
    SelfplayFailed: ("selfplay", "failed"),
    QualityScoreUpdated: ("inspection", "completed"),
    QualityDegraded: ("inspection", "completed"),
    NodeProbed: ("inspection", "completed"),
    InspectionFailed: ("inspection", "failed"),
    TrainingCompleted: ("training", "completed"),
    TrainingFailed: ("training", "failed"),
    EvaluationCompleted: ("evaluation", "completed"),
    EvaluationFailed: ("evaluation", "failed"),
    ModelDistributed: ("distribution", "completed"),
    DistributionFailed: ("distribution", "failed"),
}
"""The facts that end a job: its kind and outcome."""

CAUSES: frozenset[type[Payload]] = frozenset(
    {
        SelfplayRequested,
        SelfplayComplete,
        TrainingRequested,
        EvaluationRequested,
        MatchesRequested,
        ModelPromoted,
        ModelRolledBack,
    }
)
"""The events that jobs are done for."""

MOST_WAITING = 256
"""Most events of a configuration whose jobs are waited for. The durations of older jobs are not known."""

BOUNDS = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0)
"""Upper bounds of durations that are counted together, in seconds. The last count has no bound."""


class Durations(Row, frozen=True):
    """Durations, counted between ``BOUNDS``, and their sum."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    sum_seconds: float = 0.0

    def with_one(self, seconds: float) -> "Durations":
        """Return the durations with one more. A duration that equals a bound counts below it, as in Prometheus."""
        bucket = bisect_left(BOUNDS, seconds)
        counts = (*self.counts[:bucket], self.counts[bucket] + 1, *self.counts[bucket + 1 :])
        return Durations(counts=counts, sum_seconds=self.sum_seconds + seconds)


class CountRow(Row, frozen=True):
    """Counts of one configuration, or of the run.

    Events are counted by name, jobs by kind and outcome, durations by kind. ``waiting`` holds, by id, when the latest
    events were recorded whose jobs have not completed, in microseconds since 1970; ``last_us`` is when the latest event
    was recorded.
    """

    events: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, dict[str, int]] = field(default_factory=dict)
    durations: dict[str, Durations] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    last_us: int = 0


@dataclass(frozen=True)
class EventCounts:
    """Counts all events. The rows' keys are configurations, and the empty string for events about the run."""

    settings: RunSettings
    name: ClassVar[str] = "EventCounts"
    row: ClassVar[type[CountRow]] = CountRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(CATALOGUE)
    emits: ClassVar[frozenset[type[Payload]]] = frozenset()

    def step(self, rows: Mapping[str, CountRow], event: Event[Payload]) -> Step[CountRow]:
        """Count one event."""
        row, name = rows.get(event.subject) or CountRow(), event.data.event_name
        changes: dict[str, Any] = {"events": {**row.events, name: row.events.get(name, 0) + 1}}
        changes["last_us"] = event.recorded_us
        if result := RESULTS.get(type(event.data)):
            changes |= _changes_by_end(row, event, *result)
        if type(event.data) in CAUSES:
            waiting = {**changes.get("waiting", row.waiting), event.id: event.recorded_us}
            changes["waiting"] = dict(list(waiting.items())[-MOST_WAITING:])
        return Step({event.subject: row.replace(**changes)})


def _changes_by_end(row: CountRow, event: Event[Payload], kind: str, outcome: JobOutcome) -> dict[str, Any]:
    """Return a row's changes by a job that ended: the count, and the duration of a completed job of a known cause."""
    of_kind = row.jobs.get(kind, {})
    changes: dict[str, Any] = {"jobs": {**row.jobs, kind: {**of_kind, outcome: of_kind.get(outcome, 0) + 1}}}
    since_us = row.waiting.get(event.envelope.causationid or "") if outcome == "completed" else None
    if since_us is not None:
        seconds = max(0, event.recorded_us - since_us) / SECOND_US
        durations = row.durations.get(kind, Durations()).with_one(seconds)
        waiting = {name: since for name, since in row.waiting.items() if name != event.envelope.causationid}
        changes |= {"durations": {**row.durations, kind: durations}, "waiting": waiting}
    return changes


@dataclass(frozen=True)
class ConfigFold:
    """Folds the row of each configuration that ``flyball status`` shows."""

    settings: RunSettings
    name: ClassVar[str] = "ConfigFold"
    row: ClassVar[type[ConfigRow]] = ConfigRow
    reads: ClassVar[frozenset[type[Payload]]] = CONFIGS_READ
    emits: ClassVar[frozenset[type[Payload]]] = frozenset()

    def step(self, rows: Mapping[str, ConfigRow], event: Event[Payload]) -> Step[ConfigRow]:
        """Fold one event about a configuration."""
        return Step(fold_configs(rows, event))


@dataclass(frozen=True)
class DaemonFold:
    """Folds the row of each daemon that ``flyball status`` shows, under ``daemon@node``."""

    settings: RunSettings
    name: ClassVar[str] = "DaemonFold"
    row: ClassVar[type[DaemonRow]] = DaemonRow
    reads: ClassVar[frozenset[type[Payload]]] = DAEMONS_READ
    emits: ClassVar[frozenset[type[Payload]]] = frozenset()

    def step(self, rows: Mapping[str, DaemonRow], event: Event[Any]) -> Step[DaemonRow]:
        """Fold one event about a daemon."""
        return Step(fold_daemons(rows, event))
