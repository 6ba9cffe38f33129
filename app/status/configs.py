"""The status of each configuration: a fold over events."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import field

from flyball.app.controllers import Lineage
from flyball.app.core import RANDOM, SECOND_US, MeanOutcome, ModelHash, Rate
from flyball.app.events import (
    CurriculumRebalanced,
    DistributionFailed,
    DistributionLate,
    EloUpdated,
    EvaluationCompleted,
    EvaluationFailed,
    EvaluationOverdue,
    EvaluationRequested,
    Event,
    ExplorationBoost,
    Kind,
    MatchmakingUpdated,
    ModelCached,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    PromotionRejected,
    QualityScoreUpdated,
    RegressionCleared,
    RegressionDetected,
    SelfplayComplete,
    TrainingBlockedByQuality,
    TrainingCompleted,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
    TrainingUnblocked,
)
from flyball.app.events.rows import Row

WINDOW_SECONDS = 60
"""Time over which rates are measured."""

TRAINING, EVALUATION = "training", "evaluation"
Changes = dict[str, Any]


class Decided(Row, frozen=True):
    """A decision: its event name, event id and record time."""

    name: str
    id: str
    recorded_us: int


class PastChampion(Row, frozen=True):
    """A champion, and the number of finished loops when it became current."""

    model: ModelHash
    loops: int


class Progress(Row, frozen=True):
    """The latest rated model's score against the champion of ``loops`` loops ago.

    ``outcome`` is the mean outcome in the game's own units, where outcomes are graded.
    """

    score: Rate
    loops: int
    outcome: MeanOutcome | None = None


class Boosted(Row, frozen=True):
    """An exploration boost. ``multiplier`` is the factor on the sampling temperature."""

    multiplier: float
    since_us: int
    lasts_seconds: float


class Failing(Row, frozen=True):
    """Failures in a row of one kind of work. ``error`` is the last one's."""

    times: int
    error: str


class Untrained(Row, frozen=True):
    """Shards and rows played since training last had its chance.

    A training that is requested, completed or failed resets them. So does a rejected or distributed model, a lifted
    block, or a change of the training intensity.
    """

    shards: int = 0
    rows: int = 0


class ConfigRow(Row, frozen=True):
    """The state of one configuration.

    ``since_us`` is the time of the first event. ``played`` holds the games of each second within the window.
    ``elo`` and ``elo_stderr`` are of the model rated last.
    ``evaluated`` is the last evaluated model, until it is promoted or rejected. ``tested_us`` is when games of the
    candidate were last requested, played or failed; at first, when it was trained. ``undecided`` is the share of
    the latest gate's games in which no player had a decision; ``alike``: its games repeat each other. ``loops``
    counts trainings that were evaluated and decided; ``promotions`` and ``rejections`` count verdicts on trained
    models, including operators'. The initial model counts in none of them. ``champions`` ends with the current model.
    ``blocked`` is the reason of a training block. ``quality`` is the data quality behind the training intensity,
    ``weakest`` the least component of the latest shard's score. ``overdue`` is the latest EVALUATION_OVERDUE since
    the last evaluation. ``undistributed`` is the failure to distribute the current model. ``late`` are nodes that
    were reported to lack the distributed model. ``failing`` holds the failures of trainings and evaluations, by the
    noun. ``diverged`` counts the latest trainings in a row that diverged. ``regression`` is the open regression of
    the current model.
    """

    key: str
    since_us: int
    games: int = 0
    rows: int = 0
    played: tuple[tuple[int, int], ...] = ()
    step: int | None = None
    elo: float | None = None
    elo_stderr: float | None = None
    win_rate_random: Rate | None = None
    outcome_random: MeanOutcome | None = None
    promotions: int = 0
    rejections: int = 0
    rollbacks: int = 0
    loops: int = 0
    evaluated: ModelHash | None = None
    tested_us: int | None = None
    undecided: float = 0.0
    alike: bool = False
    lineage: Lineage = Lineage()
    champions: tuple[PastChampion, ...] = ()
    progress: Progress | None = None
    blocked: str | None = None
    paused: bool = False
    quality: float | None = None
    weakest: tuple[str, float] | None = None
    overdue: EvaluationOverdue | None = None
    undistributed: DistributionFailed | None = None
    late: tuple[str, ...] = ()
    failing: dict[str, Failing] = field(default_factory=dict)
    diverged: int = 0
    untrained: Untrained = Untrained()
    regression: RegressionDetected | None = None
    boosted: Boosted | None = None
    plateaued: bool = False
    decision: Decided | None = None

    @property
    def model(self) -> ModelHash | None:
        """The current model."""
        return self.lineage.current_model

    def games_per_second(self, now_us: int) -> float | None:
        """Return the recent rate; ``None`` without games, or in the first second."""
        seconds = min(WINDOW_SECONDS, (now_us - self.since_us) / SECOND_US)
        if not self.played or seconds < 1:
            return None
        return sum(games for second, games in self.played if second > now_us // SECOND_US - WINDOW_SECONDS) / seconds

    def boost(self, now_us: int) -> float | None:
        """Return the boost's factor on the sampling temperature; ``None`` without a boost."""
        if self.boosted is None or now_us - self.boosted.since_us > self.boosted.lasts_seconds * SECOND_US:
            return None
        return self.boosted.multiplier


def fold_config(row: ConfigRow, event: Event[Payload]) -> ConfigRow:
    """Return the row after one more event about its configuration."""
    if isinstance(event.data, ModelPromoted | ModelRolledBack) and not row.lineage.changes_current(event.data):
        return row
    if isinstance(event.data, PromotionRejected) and not row.lineage.is_trial(event.data.model):
        return row
    row = row.replace(lineage=row.lineage.after(event))
    changed = CHANGED_BY.get(type(event.data))
    changes = changed(row, event) if changed else {}
    if event.data.kind is Kind.DECISION and not isinstance(event.data, MatchmakingUpdated):  # it would hide the others
        changes["decision"] = Decided(name=event.data.event_name, id=event.id, recorded_us=event.recorded_us)
    return row.replace(**changes) if changes else row


def fold_configs(rows: Mapping[str, ConfigRow], event: Event[Any]) -> dict[str, ConfigRow]:
    """Return the rows that an event of ``CONFIGS_READ`` changes, by the configuration's key."""
    if isinstance(data := event.data, CurriculumRebalanced):
        return {key: row.replace(plateaued=key in data.plateaued) for key, row in rows.items() if key in data.weights}
    row = rows.get(event.subject) or ConfigRow(key=event.subject, since_us=event.recorded_us)
    return {event.subject: fold_config(row, event)}


def _selfplay(row: ConfigRow, event: Event[SelfplayComplete]) -> Changes:
    shard, second = event.data.shard, event.recorded_us // SECOND_US
    before, games = row.played, shard.games
    if before and before[-1][0] == second:
        before, games = before[:-1], games + before[-1][1]
    played = tuple((then, count) for then, count in before if then > second - WINDOW_SECONDS)
    counted = Untrained(shards=row.untrained.shards + 1, rows=row.untrained.rows + shard.rows)
    totals = {"games": row.games + shard.games, "rows": row.rows + shard.rows, "untrained": counted}
    return totals | {"played": (*played, (second, games))}


def _tested(
    row: ConfigRow, event: Event[EvaluationRequested] | Event[EvaluationCompleted] | Event[EvaluationFailed]
) -> Changes:
    return {"tested_us": event.recorded_us} if event.data.model == row.lineage.candidate else {}


def games_repeat(data: EvaluationCompleted) -> bool:
    """Return whether the games of a gate repeat each other, one for each seat of the candidate.

    Then all of them count as one observation (see ``Candidate.after``), which decides nothing.
    """
    return data.purpose == "gate" and all(match.distinct_games <= match.players < match.games for match in data.results)


def _evaluation(row: ConfigRow, event: Event[EvaluationCompleted]) -> Changes:
    data, ended = event.data, _tested(row, event) | {"failing": _without(row, EVALUATION)}
    if data.purpose == "gate":
        undecided = (data.undecided_games or 0) / sum(match.games for match in data.results)
        return ended | {"undecided": undecided, "alike": games_repeat(data), "evaluated": data.model}
    if data.purpose != "rating":
        return ended
    random = next((result for result in data.results if result.opponent == RANDOM), None)
    rated = {"elo": data.elo, "elo_stderr": data.elo_stderr, "evaluated": data.model}
    rated |= {"overdue": None, "progress": _progress(row, data)} | ended
    if random is not None:
        rated |= {"win_rate_random": random.score, "outcome_random": random.graded_outcome}
    return rated


def _progress(row: ConfigRow, data: EvaluationCompleted) -> Progress | None:
    """Return the score against the earliest past champion among the opponents; None without such an opponent."""
    matches = {match.opponent_model: match for match in data.results if match.opponent in ("recent", "champion")}
    played = [champion for champion in row.champions[:-1] if champion.model in matches]
    if not played:
        return None
    match = matches[played[0].model]
    return Progress(score=match.score, loops=row.loops - played[0].loops, outcome=match.graded_outcome)


def _promotion(row: ConfigRow, event: Event[ModelPromoted]) -> Changes:
    trained = event.data.step > 0 and row.lineage.root != event.data.model
    judged = _loop(row, event.data)
    newest = PastChampion(model=event.data.model, loops=judged.get("loops", row.loops))
    promoted = {"promotions": row.promotions + trained, "champions": _champions(row, newest), "regression": None}
    return promoted | judged


def _champions(row: ConfigRow, *newest: PastChampion) -> tuple[PastChampion, ...]:
    """Return the champions in the lineage's order, with new ones added."""
    since = {champion.model: champion for champion in (*row.champions, *newest)}
    return tuple(since[past.model] for past in row.lineage.champions if past.model in since)


def _rejection(row: ConfigRow, event: Event[PromotionRejected]) -> Changes:
    return {"rejections": row.rejections + 1, "untrained": Untrained()} | _loop(row, event.data)


def _loop(row: ConfigRow, data: ModelPromoted | PromotionRejected) -> Changes:
    if row.evaluated != data.model:
        return {}
    return {"evaluated": None, "loops": row.loops + (data.step > 0)}


def _rollback(row: ConfigRow, _: Event[ModelRolledBack]) -> Changes:
    return {"champions": _champions(row), "rollbacks": row.rollbacks + 1, "regression": None}


def _boost(_: ConfigRow, event: Event[ExplorationBoost]) -> Changes:
    multiplier, seconds = event.data.multiplier, event.data.lasts_seconds
    boosted = Boosted(multiplier=multiplier, since_us=event.recorded_us, lasts_seconds=seconds)
    return {"boosted": None if multiplier == 1 else boosted}


def _undistributed(row: ConfigRow, event: Event[DistributionFailed]) -> Changes:
    """Note a failure that the loop waits for.

    If the model is played already and not damaged, only nodes other than the head lack it, and the loop does not wait
    for these.
    """
    is_elsewhere = event.data.model == row.lineage.playing and not event.data.damaged
    return {} if is_elsewhere else {"undistributed": event.data}


def _cached(row: ConfigRow, event: Event[ModelCached]) -> Changes:
    """Note a node that has the model; on the head it may have been lost before."""
    sound = row.undistributed is not None and event.data.node == row.undistributed.node
    late = {"late": tuple(node for node in row.late if node != event.data.node)}
    return late | ({"undistributed": None} if sound else {})


def _failure(row: ConfigRow, noun: str, error: str) -> Changes:
    before = row.failing[noun].times if noun in row.failing else 0
    return {"failing": {**row.failing, noun: Failing(times=before + 1, error=error)}}


def _without(row: ConfigRow, noun: str) -> dict[str, Failing]:
    return {other: failing for other, failing in row.failing.items() if other != noun}


def _trained(row: ConfigRow, event: Event[TrainingCompleted]) -> Changes:
    trained = {"step": event.data.step, "failing": _without(row, TRAINING), "diverged": 0}
    return trained | {"untrained": Untrained(), "tested_us": event.recorded_us}


def _untrained(row: ConfigRow, event: Event[TrainingFailed]) -> Changes:
    diverged = row.diverged + 1 if event.data.reason == "diverged" else 0
    return _failure(row, TRAINING, event.data.error) | {"diverged": diverged, "untrained": Untrained()}


def _intensity(_: ConfigRow, event: Event[TrainingIntensityChanged]) -> Changes:
    paused, quality = event.data.intensity == "paused", event.data.quality_score
    return {"paused": paused, "quality": quality, "untrained": Untrained()}


def _quality(_: ConfigRow, event: Event[QualityScoreUpdated]) -> Changes:
    components = event.data.components.items()
    return {"weakest": min(components, key=lambda component: component[1]) if components else None}


def _regression(row: ConfigRow, event: Event[RegressionDetected]) -> Changes:
    return {"regression": event.data} if event.data.model == row.model else {}


CHANGED_BY: Mapping[type[Payload], Callable[[ConfigRow, Event[Any]], Changes]] = {
    SelfplayComplete: _selfplay,
    TrainingCompleted: _trained,
    TrainingFailed: _untrained,
    TrainingBlockedByQuality: lambda _, event: {"blocked": event.data.reason},
    TrainingUnblocked: lambda *_: {"blocked": None, "untrained": Untrained()},
    TrainingRequested: lambda *_: {"untrained": Untrained()},
    TrainingIntensityChanged: _intensity,
    QualityScoreUpdated: _quality,
    EvaluationRequested: _tested,
    EvaluationCompleted: _evaluation,
    EvaluationFailed: lambda row, event: _failure(row, EVALUATION, event.data.error) | _tested(row, event),
    EvaluationOverdue: lambda _, event: {"overdue": event.data},
    DistributionFailed: _undistributed,
    DistributionLate: lambda row, event: {"late": tuple(dict.fromkeys((*row.late, *event.data.nodes)))},
    ModelCached: _cached,
    ModelDistributed: lambda *_: {"undistributed": None, "late": (), "untrained": Untrained()},
    ModelPromoted: _promotion,
    PromotionRejected: _rejection,
    ModelRolledBack: _rollback,
    ExplorationBoost: _boost,
    RegressionDetected: _regression,
    RegressionCleared: lambda *_: {"regression": None},
}
"""Functions that return an event's changes to a configuration's row, by type."""

CONFIGS_READ: frozenset[type[Payload]] = frozenset({*CHANGED_BY, CurriculumRebalanced, EloUpdated})
"""Payload types that the rows of configurations are folded from."""
