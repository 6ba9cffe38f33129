"""The metrics of a run for Prometheus, and their values (ADR-036).

Names and units follow https://prometheus.io/docs/practices/naming/. No label has an id of an event, model or shard,
because Prometheus keeps a series for every value. An unknown value has no sample, because 0 would be a claim.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from typing import Literal, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from flyball.app.bus.ports import Present
from flyball.app.config import RunSettings
from flyball.app.controllers.state import FeedbackState, WorkerTime
from flyball.app.core import BROKER, SECOND_US, ConfigKey
from flyball.app.events.payload import Intensity
from flyball.app.status.configs import ConfigRow
from flyball.app.status.monitored import BOUNDS, RESULTS, CountRow, Durations
from flyball.app.status.obstacles import waiting_for
from flyball.app.status.status import DaemonRow, Presence, microseconds

Sample = tuple[tuple[str, ...], float | None]
"""Values of the labels, and the value; ``None``: it is unknown."""

Kind = Literal["gauge", "counter", "histogram"]
Activity = Literal["selfplay", "training", "evaluation", "promotion"]


@dataclass(frozen=True, slots=True)
class Storage:
    """Sizes of a run's files, in bytes, and its dead letters. ``free`` and ``size`` are of the run folder's disk.

    ``unshipped`` is the number of events that are not shipped, the first of them recorded ``unshipped_seconds`` ago;
    ``None`` if the journal is to be shipped nowhere.
    """

    journal: int
    archive: int
    free: int
    size: int
    dead_letters: int
    unshipped: int | None = None
    unshipped_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """Messages of a webhook or collector, by outcome. ``behind`` is the number of events that wait for it."""

    outcomes: Mapping[str, int]
    behind: int


@dataclass(frozen=True)
class View:
    """Facts from which the metrics are made.

    Attributes:
        now: the time of day.
        head: position of the last event.
        settings: the run's; configurations that it does not play have no metrics.
        states: FeedbackState by configuration.
        configs: rows by configuration.
        daemons: rows by ``daemon@node``.
        counts: counts by configuration.
        presence: the broker's table of daemons; ``None`` if it did not answer.
        storage: ``None`` on a machine without the journal.
        deliveries: by the name of the webhook or collector.
    """

    now: datetime
    head: int
    settings: RunSettings
    states: Mapping[str, FeedbackState] = field(default_factory=dict)
    configs: Mapping[str, ConfigRow] = field(default_factory=dict)
    daemons: Mapping[str, DaemonRow] = field(default_factory=dict)
    counts: Mapping[str, CountRow] = field(default_factory=dict)
    presence: Presence | None = None
    storage: Storage | None = None
    deliveries: Mapping[str, Delivery] = field(default_factory=dict)

    @property
    def now_us(self) -> int:
        """The time of day, microseconds since 1970."""
        return microseconds(self.now)

    def rows(self) -> Iterator["Config"]:
        """Iterate over the configurations that the run plays."""
        for config in self.settings.configs:
            state = self.states.get(config.key) or FeedbackState(config_key=ConfigKey(config.key))
            yield Config(self, config.key, state, self.configs.get(config.key) or ConfigRow(config.key, self.now_us))


@dataclass(frozen=True, slots=True)
class Config:
    """One configuration in a view."""

    view: View
    key: str
    state: FeedbackState
    row: ConfigRow


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: name, kind, meaning, labels, and samples in a view. ``Exposition`` makes a histogram's samples."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    samples: Callable[[View], Iterable[Sample]]


def _of_config(name: str, text: str, value: Callable[[Config], float | None], kind: Kind = "gauge") -> Metric:
    return Metric(
        name, kind, text, ("config",), lambda view: (((config.key,), value(config)) for config in view.rows())
    )


def _of_daemon(name: str, text: str, value: Callable[[Present], float | None]) -> Metric:
    return Metric(name, "gauge", text, ("daemon", "node"), lambda view: _daemons(view, value))


def _daemons(view: View, value: Callable[[Present], float | None]) -> Iterator[Sample]:
    for present in (view.presence or {}).values():
        yield (present.daemon, present.node), value(present)


def _up(view: View) -> Iterator[Sample]:
    """Yield 1 for each living daemon, and 0 for each lost one. The broker lives if it has just answered."""
    for row in view.daemons.values():
        if row.daemon == BROKER and row.state != "stopped":
            yield (row.daemon, row.node), float(view.presence is not None)
    yield from _daemons(view, lambda present: float(not present.lost))


def _of_row(name: str, kind: Kind, text: str, value: Callable[[DaemonRow], float | None]) -> Metric:
    return Metric(
        name,
        kind,
        text,
        ("daemon", "node"),
        lambda view: (((row.daemon, row.node), value(row)) for row in view.daemons.values() if row.state != "stopped"),
    )


def _of_storage(name: str, text: str, value: Callable[[Storage], float | None]) -> Metric:
    return Metric(name, "gauge", text, (), lambda view: [((), None if view.storage is None else value(view.storage))])


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


def _intensities(view: View) -> Iterator[Sample]:
    for config in view.rows():
        for intensity in get_args(Intensity):
            yield (config.key, intensity), float(config.state.training_intensity == intensity)


def _worker_seconds(view: View) -> Iterator[Sample]:
    for config in view.rows():
        for kind in WorkerTime.__struct_fields__:
            yield (config.key, kind), getattr(config.state.worker_time, kind)


def _activities(view: View) -> Iterator[Sample]:
    for config in view.rows():
        for activity in get_args(Activity):
            yield (config.key, activity), _seconds(getattr(config.state, f"last_{activity}_time"))


def _jobs(view: View) -> Iterator[Sample]:
    for key, row in _counted(view):
        for kind, outcome in sorted(set(RESULTS.values())):  # from 0 on, so that a first failure is an increase
            yield (key, kind, outcome), row.jobs.get(kind, {}).get(outcome, 0)


def _events(view: View) -> Iterator[Sample]:
    counts: dict[str, int] = {}
    for row in view.counts.values():
        for name, count in row.events.items():
            counts[name] = counts.get(name, 0) + count
    yield from (((name,), count) for name, count in sorted(counts.items()))


def _counted(view: View) -> Iterator[tuple[str, CountRow]]:
    for config in view.rows():
        yield config.key, view.counts.get(config.key) or CountRow()


def _waits(config: Config) -> float:
    return float(waiting_for(config.row, config.view.settings) is not None)


def _rating(config: Config) -> tuple[float | None, float | None]:
    """Return the champion's rating and its standard error."""
    return config.state.lineage.rating(config.state.elo_current, config.state.elo_stderr)


def _learning_rate(config: Config) -> float:
    rate = config.state.learning_rate
    return config.view.settings.config(config.key).learning_rate if rate is None else rate


METRICS: tuple[Metric, ...] = (
    Metric(
        "flyball_build_info",
        "gauge",
        "Always 1; the label names the version.",
        ("version",),
        lambda _: [((version("flyball"),), 1)],
    ),
    _of_config("flyball_rating_elo", "Elo of the champion; the random bot is 0.", lambda c: _rating(c)[0]),
    _of_config("flyball_rating_stderr_elo", "Standard error of the rating, in Elo.", lambda c: _rating(c)[1]),
    _of_config(
        "flyball_rating_velocity_elo_per_hour",
        "Present slope of the ratings.",
        lambda c: c.state.elo_velocity,
    ),
    _of_config(
        "flyball_win_ratio", "Score of the latest rated model against the random bot.", lambda c: c.state.win_rate
    ),
    _of_config("flyball_training_step", "Trainings of the latest model since the initial one.", lambda c: c.row.step),
    _of_config("flyball_data_quality_ratio", "Smoothed quality of the shards.", lambda c: c.state.quality_score),
    _of_config(
        "flyball_parity_failures_ratio",
        "Share of replayed games that differ from the rules.",
        lambda c: c.state.parity_failure_rate,
    ),
    Metric(
        "flyball_training_intensity",
        "gauge",
        "1 for the intensity that is set, 0 for the others.",
        ("config", "intensity"),
        _intensities,
    ),
    _of_config(
        "flyball_training_blocked",
        "1 while training is blocked by data that breaks the rules or by an operator.",
        lambda c: c.state.training_block is not None,
    ),
    _of_config(
        "flyball_config_waiting", "1 while the configuration waits for what status names with a remedy.", _waits
    ),
    _of_config(
        "flyball_exploration_boost_ratio",
        "Factor on the sampling temperature; 1 without a boost.",
        lambda c: c.row.boost(c.view.now_us) or 1.0,
    ),
    _of_config("flyball_selfplay_rate_ratio", "Factor on the rate of self-play.", lambda c: c.state.selfplay_rate),
    _of_config(
        "flyball_curriculum_weight",
        "Share of worker time, relative to the mean of 1.",
        lambda c: c.state.curriculum_weight,
    ),
    _of_config("flyball_plateaued", "1 while the configuration's gain is done.", lambda c: c.state.plateaued),
    Metric(
        "flyball_worker_seconds_total",
        "counter",
        "Worker time spent on the configuration, by kind of job.",
        ("config", "kind"),
        _worker_seconds,
    ),
    _of_config("flyball_learning_rate", "Learning rate of the next training.", _learning_rate),
    _of_config("flyball_urgency_ratio", "How much the configuration needs attention.", lambda c: c.state.urgency_score),
    _of_config("flyball_trainings_diverged", "Latest trainings in a row that diverged.", lambda c: c.row.diverged),
    _of_config("flyball_nodes_late", "Nodes that were reported to lack the current model.", lambda c: len(c.row.late)),
    Metric(
        "flyball_last_activity_timestamp_seconds",
        "gauge",
        "When the last activity of this kind was recorded.",
        ("config", "activity"),
        _activities,
    ),
    _of_config("flyball_selfplay_games_total", "Games of self-play.", lambda c: c.row.games, "counter"),
    _of_config("flyball_selfplay_rows_total", "Rows of experience.", lambda c: c.row.rows, "counter"),
    _of_config(
        "flyball_promotions_total",
        "Trained models that were promoted, without the initial one.",
        lambda c: c.row.promotions,
        "counter",
    ),
    _of_config("flyball_promotions_rejected_total", "Rejected models.", lambda c: c.row.rejections, "counter"),
    _of_config("flyball_rollbacks_total", "Rollbacks.", lambda c: c.row.rollbacks, "counter"),
    Metric(
        "flyball_jobs_total", "counter", "Jobs that ended, by kind and outcome.", ("config", "kind", "outcome"), _jobs
    ),
    Metric(
        "flyball_job_duration_seconds",
        "histogram",
        "From the record of what a job is done for until the record of its result: waiting and work.",
        ("config", "kind"),
        lambda _: (),
    ),
    Metric("flyball_events_total", "counter", "Recorded events, by name.", ("event",), _events),
    Metric("flyball_daemon_up", "gauge", "1 if the broker hears the daemon, 0 if it is lost.", ("daemon", "node"), _up),
    _of_daemon(
        "flyball_daemon_silence_seconds", "Time since the daemon's last sign of life.", lambda p: p.heard_seconds_ago
    ),
    _of_daemon(
        "flyball_daemon_lag_events",
        "Events that the daemon has not read yet.",
        lambda p: p.sign.lag if p.sign else None,
    ),
    _of_daemon("flyball_daemon_jobs_running", "Jobs that run now.", lambda p: p.sign.jobs if p.sign else None),
    _of_daemon(
        "flyball_daemon_jobs_wanted", "Jobs that run or come next.", lambda p: p.sign.requests if p.sign else None
    ),
    _of_row(
        "flyball_daemon_unclean_starts_total",
        "counter",
        "Starts without an orderly stop before them.",
        lambda row: row.restarts,
    ),
    _of_row(
        "flyball_worker_paused", "gauge", "1 while the scheduler asks the worker for nothing.", lambda r: r.degraded
    ),
    _of_row(
        "flyball_worker_quarantined", "gauge", "1 while the worker's rows are not trained on.", lambda r: r.quarantined
    ),
    Metric(
        "flyball_journal_events_total",
        "counter",
        "Events in the journal, archived ones included.",
        (),
        lambda view: [((), view.head)],
    ),
    Metric(
        "flyball_last_event_timestamp_seconds",
        "gauge",
        "When the latest event was recorded, by the broker's clock; the broker ticks every tick_seconds.",
        (),
        lambda view: [((), max((row.last_us for row in view.counts.values()), default=0) / SECOND_US or None)],
    ),
    _of_storage(
        "flyball_journal_bytes",
        "Size of the journal: of journal.sqlite and its log, or of its tables in a database.",
        lambda s: s.journal,
    ),
    _of_storage("flyball_archive_bytes", "Size of the archived segments and snapshots.", lambda s: s.archive),
    _of_storage("flyball_dead_letters", "Recorded events that could not be read or folded.", lambda s: s.dead_letters),
    _of_storage(
        "flyball_journal_unshipped_events", "Events that are not in deployment.journal.ship.", lambda s: s.unshipped
    ),
    _of_storage(
        "flyball_journal_unshipped_seconds",
        "Time since the first event was recorded that is not in deployment.journal.ship.",
        lambda s: s.unshipped_seconds,
    ),
    _of_storage("flyball_disk_free_bytes", "Free space on the run folder's disk.", lambda s: s.free),
    _of_storage("flyball_disk_size_bytes", "Size of the run folder's disk.", lambda s: s.size),
    Metric(
        "flyball_deliveries_total",
        "counter",
        "Messages to webhooks and to the collector of traces: delivered, failed (tried again), dropped.",
        ("receiver", "outcome"),
        lambda view: (
            ((name, outcome), count)
            for name, delivery in view.deliveries.items()
            for outcome, count in delivery.outcomes.items()
        ),
    ),
    Metric(
        "flyball_deliveries_lag_events",
        "gauge",
        "Events that the receiver has not been notified of yet.",
        ("receiver",),
        lambda view: (((name,), delivery.behind) for name, delivery in view.deliveries.items()),
    ),
)
"""All metrics, in the order of the reference."""


class Exposition(Collector):
    """Gives the metrics of the present view to ``prometheus_client``. Without a view there are no metrics."""

    def __init__(self, view: Callable[[], View | None]) -> None:
        self._view = view

    def describe(self) -> Iterable[Family]:
        """Return nothing, because the names are known only together with the values."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Iterate over the metrics that have samples."""
        if (view := self._view()) is None:
            return
        for metric in METRICS:
            if metric.kind == "histogram":
                yield _histogram(metric, view)
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for labels, value in metric.samples(view):
                if value is not None:
                    family.add_metric(labels, float(value))
            if family.samples:
                yield family


def _histogram(metric: Metric, view: View) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for key, row in _counted(view):
        for kind, durations in row.durations.items():
            family.add_metric((key, kind), _buckets(durations), durations.sum_seconds)
    return family


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    """Return how many durations are at most as long as each bound."""
    total, buckets = 0, list[tuple[str, float]]()
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), durations.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets


HEADING = """# Metrics

What the daemon `monitoring` answers Prometheus; [monitoring.md](monitoring.md) says how to ask. Written by
`python -m flyball.app.status.metrics`.
"""


def reference() -> str:
    """Return the reference of all metrics, in Markdown."""
    lines = [HEADING, "| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
