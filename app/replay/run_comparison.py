"""Comparisons of two runs: their reports, ratings, settings and decisions side by side. Pure."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import hypot
from typing import Any, ClassVar, NamedTuple

from flyball.app.config import RunSettings, flatten
from flyball.app.core import SECONDS_PER_HOUR, ConfigKey, Elo, Record, Tabular, flat, named
from flyball.app.events.frames import DeadLetter
from flyball.app.events.rows import Row
from flyball.app.journal import JournalReader
from flyball.app.replay.run_report import ConfigReport, Rated, RunReport, RunReports, fold_report
from flyball.app.status.status import Status
from flyball.app.status.summary import UNKNOWN, show_age, show_time

UNSET = "unset"
"""Value of a setting that only the other run has, such as a bot's or a user-defined controller's."""

WHOLE: Mapping[str, Callable[[RunReport], str]] = {
    "began": lambda report: UNKNOWN if report.first is None else show_time(report.first),
    "lasted": lambda report: show_age(report.seconds),
    "machines": lambda report: ", ".join(report.nodes) or UNKNOWN,
    "events": lambda report: f"{report.events:,}",
    "seconds of workers": lambda report: f"{report.worker_seconds:,.0f}",
    "of these evaluation": lambda report: f"{report.evaluation_share:.0%}",
}
"""Figures of a whole run in displays, by name."""

TOTALS: Mapping[str, str] = {
    "games": "games",
    "rows": "rows",
    "trainings": "trainings",
    "promoted": "promotions",
    "rejected": "rejections",
    "dropped": "dropped",
    "awaiting a verdict": "awaiting",
    "rollbacks": "rollbacks",
    "boosts": "boosts",
}
"""Counts of a ``ConfigReport`` that are summed over a run, by their names in displays."""


class ComparedRun(NamedTuple):
    """The parts of a run that are compared.

    Attributes:
        name: of its folder.
        report: of the whole run.
        settings: the latest ones; ``None`` in an empty journal.
        ratings: each configuration's ratings, in order of time.
    """

    name: str
    report: RunReport
    settings: RunSettings | None
    ratings: Mapping[str, Sequence[Rated]]

    @classmethod
    def of(cls, name: str, folded: RunReports, status: Status | None) -> "ComparedRun":
        """Return what was folded of a run."""
        return cls(name, folded.report(status), folded.controllers.settings, folded.ratings)


class HourlyRating(Row, frozen=True):
    """A rating, ``hours`` after the run's first event."""

    hours: float
    elo: Elo
    stderr: float


class RunSide(Row, frozen=True):
    """One of two compared runs.

    Attributes:
        name: of its folder.
        report: of the whole run.
        ratings: of the configurations that both runs have.
    """

    name: str
    report: RunReport
    ratings: dict[ConfigKey, tuple[HourlyRating, ...]]


class Gain(Row, frozen=True):
    """A difference of ratings, in Elo, with its standard error."""

    elo: float
    stderr: float


class ConfigComparison(Row, frozen=True):
    """A configuration in two runs.

    Attributes:
        a, b: its reports.
        gained_a, gained_b: Elo from its first rating to its latest one; ``None`` without any.
        difference: what it gained in the second run over what it gained in the first.
    """

    key: ConfigKey
    a: ConfigReport
    b: ConfigReport
    gained_a: Gain | None
    gained_b: Gain | None
    difference: Gain | None


class SettingDifference(Row, frozen=True):
    """A setting that differs, with its values as JSON; ``UNSET`` where a run lacks it."""

    name: str
    a: str
    b: str


class DecisionCounts(Row, frozen=True):
    """How often a controller, or an operator, decided or observed something in two runs."""

    by: str
    event: str
    a: int
    b: int


class RunComparison(Tabular, Row, frozen=True):
    """Two runs side by side.

    Attributes:
        a, b: the runs.
        configs: configurations of both runs, in the first one's order.
        only_a, only_b: configurations of one run alone.
        settings: those that differ, without settings of configurations of one run alone.
        decided: decisions and observations by controller or operator.
    """

    brief_columns: ClassVar = {
        "configs": ("key", "gained_a_elo", "gained_b_elo", "difference_elo", "difference_stderr", "a_elo", "b_elo")
    }

    a: RunSide
    b: RunSide
    configs: tuple[ConfigComparison, ...]
    only_a: tuple[ConfigKey, ...]
    only_b: tuple[ConfigKey, ...]
    settings: tuple[SettingDifference, ...]
    decided: tuple[DecisionCounts, ...]

    def headline(self) -> str:
        """See ``Tabular``."""
        gains = [
            f"{config.key} {config.difference.elo:+.0f} ± {config.difference.stderr:.0f} Elo"
            for config in self.configs
            if config.difference is not None
        ]
        differ = f"{len(self.settings)} settings differ" if self.settings else "no setting differs"
        return f"{self.b.name} compared with {self.a.name}: gained {named(gains) or 'nothing to compare'}; {differ}"

    def tables(self) -> dict[str, Sequence[Record]]:
        """See ``Tabular``."""
        return {
            "configs": [flat(config.to_builtins()) for config in self.configs],
            "settings": [setting.to_builtins() for setting in self.settings],
            "decided": [counts.to_builtins() for counts in self.decided],
            "ratings": [
                {"run": run.name, "key": key, **rating.to_builtins()}
                for run in (self.a, self.b)
                for key, ratings in run.ratings.items()
                for rating in ratings
            ],
        }


def compare(a: ComparedRun, b: ComparedRun) -> RunComparison:
    """Compare two runs."""
    configs_a, configs_b = ({config.key: config for config in run.report.configs} for run in (a, b))
    both = [key for key in configs_a if key in configs_b]
    return RunComparison(
        a=_side(a, both),
        b=_side(b, both),
        configs=tuple(_config(configs_a[key], configs_b[key]) for key in both),
        only_a=tuple(key for key in configs_a if key not in configs_b),
        only_b=tuple(key for key in configs_b if key not in configs_a),
        settings=tuple(_setting_differences(a.settings, b.settings)),
        decided=tuple(_decision_counts(a.report.decided, b.report.decided)),
    )


def side_by_side(a: RunReport, b: RunReport) -> Iterator[tuple[str, str, str]]:
    """Iterate over the names and values of what is compared of whole runs, as texts."""
    for name, shown in WHOLE.items():
        yield name, shown(a), shown(b)
    for name, field in TOTALS.items():
        total_a, total_b = (sum(getattr(config, field) for config in report.configs) for report in (a, b))
        yield name, f"{total_a:,}", f"{total_b:,}"


def read_run(reader: JournalReader, name: str, on_dead: Callable[[DeadLetter], None]) -> ComparedRun:
    """Fold a journal into what is compared of its run."""
    return ComparedRun.of(name, *fold_report(reader, on_dead))


def _side(run: ComparedRun, keys: Sequence[ConfigKey]) -> RunSide:
    def hourly(rated: Rated) -> HourlyRating:
        assert run.report.first is not None  # a rating is an event
        hours = (rated.time - run.report.first).total_seconds() / SECONDS_PER_HOUR
        return HourlyRating(hours=hours, elo=rated.elo, stderr=rated.stderr)

    ratings = {key: tuple(map(hourly, run.ratings.get(key, ()))) for key in keys}
    return RunSide(name=run.name, report=run.report, ratings=ratings)


def _config(a: ConfigReport, b: ConfigReport) -> ConfigComparison:
    gained_a, gained_b = _gain(a), _gain(b)
    difference = None
    if gained_a is not None and gained_b is not None:
        difference = Gain(elo=gained_b.elo - gained_a.elo, stderr=hypot(gained_a.stderr, gained_b.stderr))
    return ConfigComparison(key=a.key, a=a, b=b, gained_a=gained_a, gained_b=gained_b, difference=difference)


def _gain(config: ConfigReport) -> Gain | None:
    if config.elo is None or config.elo_before is None:
        return None
    stderr = hypot(config.elo_stderr or 0.0, config.elo_before_stderr or 0.0)
    return Gain(elo=config.elo - config.elo_before, stderr=stderr)


def _setting_differences(a: RunSettings | None, b: RunSettings | None) -> Iterator[SettingDifference]:
    if a is None or b is None:
        return
    values_a, values_b = (_values(settings, a.by_key.keys() & b.by_key.keys()) for settings in (a, b))
    for name in dict.fromkeys((*values_a, *values_b)):
        if (one := values_a.get(name, UNSET)) != (other := values_b.get(name, UNSET)):
            yield SettingDifference(name=name, a=one, b=other)


def _values(settings: RunSettings, keys: set[ConfigKey]) -> dict[str, str]:
    """Return settings as JSON, by the names that they have in ``flyball.toml``."""
    tree: dict[str, Any] = settings.model_dump(mode="json")
    configs = {config.pop("key"): config for config in tree.pop("configs")}
    tree["games"] = {key: config for key, config in configs.items() if key in keys}
    # An empty table says no more than a missing one.
    return {name: json.dumps(value, ensure_ascii=False) for name, value in flatten(tree).items() if value != {}}


def _decision_counts(
    a: Mapping[str, Mapping[str, int]], b: Mapping[str, Mapping[str, int]]
) -> Iterator[DecisionCounts]:
    for by in sorted({*a, *b}):
        counts_a, counts_b = a.get(by, {}), b.get(by, {})
        for event in sorted({*counts_a, *counts_b}):
            yield DecisionCounts(by=by, event=event, a=counts_a.get(event, 0), b=counts_b.get(event, 0))
