"""ModelPerformanceWatchdog: detects champions that play worse than earlier ones.

The test is Page's CUSUM for Bernoulli trials, on the games of every current model against a fixed opponent: the newest
lasting anchor, or the random bot before there is an anchor. The level is the measured strength of good models above
that opponent; the alternative is a drop of ``design_drop_elo`` from the level. As long as nothing is wrong, the sum
keeps returning to zero. The current model at its last zero is the last good one.

A model becomes an anchor while it is current, so the level above a new anchor begins at 0. After an alarm a restored
model is rated again and tested against the same level. A model that an operator restores without an alarm counts as
good, and its games measure a new level.

At ``suspicion`` times the threshold the current model is retested at once, because its successor is rated hours later.
A retest has few games, because another can follow, and only against the fixed opponent.
"""

from collections.abc import Mapping, Sequence
from math import log, log10
from typing import Any, ClassVar, NamedTuple, Self

from flyball.app.config.feedback import WatchdogSettings
from flyball.app.controllers.controller import Controller, Watched
from flyball.app.controllers.lineage import REMEMBERED, Champion
from flyball.app.controllers.state import States, state_of
from flyball.app.core import (
    ANCHOR,
    ELO_SCALE,
    HASH_DIGITS,
    NEWEST_ANCHOR,
    RANDOM,
    ModelHash,
    derive_seed,
    expected_score,
    is_model,
)
from flyball.app.events import (
    Emission,
    EvaluationCompleted,
    Event,
    MatchesRequested,
    MatchResult,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    RegressionCleared,
    RegressionDetected,
    Row,
    Severity,
    Step,
    handles,
)
from flyball.app.league.totals import decisive_games

# Local level model of the strength of good models, from games against the fixed opponent.
#
# The level is their strength above that opponent in Elo, with the variance of its estimate. It may change from one
# model to the next. Games of good models update it by a Kalman filter in one dimension; downward updates are halved.
# Ratings are not used, because their errors add up along a chain of champions. Evidence against a model is weighted by
# the certainty of the level, as if fewer games had been played where the level is uncertain.
#
# Sources: E. S. Page, Biometrika 41 (1954), 100-115 (CUSUM); A. C. Harvey, Forecasting, Structural Time Series Models
# and the Kalman Filter (1989), chapter 2 (local level).

EPSILON = 1e-12

DOWNWARD_GAIN = 0.5
"""Factor on downward updates of the level, because a level that follows bad models down would raise no alarm."""

PER_ELO = log(10) / ELO_SCALE
"""Log-odds of one Elo; 400 Elo mean odds of 10 to 1."""


def fixed_match(evaluation: EvaluationCompleted) -> MatchResult | None:
    """Return the match against the fixed opponent: the newest lasting anchor, or the random bot before there is one.

    A retest plays only this match. ``None`` for a rating of that anchor itself, which plays only older anchors.
    """
    if evaluation.purpose == "retest":
        return evaluation.results[0]
    if evaluation.purpose != "rating":
        return None
    by_role = {match.opponent: match for match in evaluation.results}
    if any(role.startswith(ANCHOR) for role in by_role):
        return by_role.get(NEWEST_ANCHOR)
    return by_role.get(RANDOM)


def fixed_opponent(data: RegressionDetected) -> str:
    """Return the opponent by which a regression was measured, for a decision's reason."""
    if data.opponent is None:
        return "a fixed opponent"
    return f"anchor {data.opponent[:HASH_DIGITS]}" if is_model(data.opponent) else data.opponent


class Games(NamedTuple):
    """Games against one opponent: their number and the points scored.

    A draw is half a point. Graded games count as the decisive games that tell as much.
    """

    number: int
    points: float

    @classmethod
    def of(cls, match: MatchResult) -> Self:
        """Count the games of a match."""
        number = max(1, round(decisive_games(match)))
        return cls(number, match.score.mean * number)

    @property
    def elo(self) -> float:
        """Estimated strength above the opponent, in Elo; half a win and half a loss are added to keep it finite."""
        return ELO_SCALE * log10((self.points + 0.5) / (self.number - self.points + 0.5))

    @property
    def variance(self) -> float:
        """Variance of ``elo``, Elo squared."""
        return 1 / information(self.number + 1, (self.points + 0.5) / (self.number + 1))


def information(games: int, score: float) -> float:
    """Return the Fisher information of games with an expected score, per Elo squared."""
    return games * score * (1 - score) * PER_ELO**2


class Level(Row, frozen=True):
    """Estimated strength of good models above an opponent.

    The strength is never below 0: an anchor was the current model once, and later models must not become worse than the
    anchor unnoticed, however slowly they get worse.

    Attributes:
        opponent: the reference; ``None``: the random bot.
        elo: the strength, in Elo.
        variance: the variance of the estimate, in Elo squared.
    """

    opponent: ModelHash | None
    elo: float = 0.0
    variance: float = 0.0

    @property
    def player(self) -> str:
        """The opponent's name in requests and results."""
        return self.opponent or RANDOM

    @classmethod
    def measured(cls, opponent: ModelHash | None, games: Games) -> Self:
        """Estimate the level from these games alone; never below 0."""
        return cls(opponent=opponent, elo=max(0.0, games.elo), variance=games.variance)

    def drifted(self, elo: float) -> Self:
        """Widen the estimate for the next model, whose strength differs by a standard deviation of ``elo``."""
        return self.replace(variance=self.variance + elo**2)

    def after(self, games: Games) -> Self:
        """Update the estimate with games of good models."""
        gain, more = self.variance / (self.variance + games.variance), games.elo - self.elo
        elo = max(0.0, self.elo + gain * (more if more > 0 else DOWNWARD_GAIN * more))
        return self.replace(elo=elo, variance=self.variance * (1 - gain))

    def certainty(self, games: int) -> float:
        """Return the weight of evidence from games, in (0, 1]: the less certain the level, the less it is."""
        return 1 / (1 + information(games, clamp_probability(expected_score(self.elo))) * self.variance)


def cusum_step(statistic: float, score: float, games: int, difference: float, drop: float) -> float:
    """Add games to Page's statistic.

    The new value is max(0, S + sum of log-likelihood ratios of the drop).

    Args:
        statistic: S so far.
        score: mean score of the games, draws one half.
        games: number of games.
        difference: expected strength above the opponent, Elo.
        drop: Elo by which the alternative is weaker.
    """
    before, after = clamp_probability(expected_score(difference)), clamp_probability(expected_score(difference - drop))
    ratio = score * log(after / before) + (1 - score) * log((1 - after) / (1 - before))
    return max(0.0, statistic + games * ratio)


def clamp_probability(score: float) -> float:
    """Clamp an expected score into (0, 1), because thousands of Elo round it to 0 or 1."""
    return min(1 - EPSILON, max(EPSILON, score))


SEVERITIES: tuple[Severity, ...] = ("minor", "moderate", "severe", "critical")


class CusumState(Row, frozen=True):
    """Evidence against the latest models since the sum was last zero.

    Attributes:
        total: the sum of log-likelihood ratios, the CUSUM.
        games: games counted since then.
        points: points of these games, draws one half.
        matches: number of the current model's matches since then.
    """

    total: float = 0.0
    games: int = 0
    points: float = 0.0
    matches: int = 0


class WatchRow(Row, frozen=True):
    """One configuration's test.

    Attributes:
        since: the champions from the latest whose match was counted to the one before the current, oldest first; empty
            after a rollback.
        evaluated: the latest model that was rated while it was not current.
        match: that model's match against the fixed opponent, counted if the model is promoted.
        level: strength of good models; ``None``: the next rating of a current model measures it.
        doubt: evidence against the latest models.
        last_good: the latest current model without such evidence.
        alarmed: the model of the alarm that is not cleared yet.
        calm_games: rated games without evidence since the alarm.
    """

    since: tuple[ModelHash, ...] = ()
    evaluated: ModelHash | None = None
    match: MatchResult | None = None
    level: Level | None = None
    doubt: CusumState = CusumState()
    last_good: ModelHash | None = None
    alarmed: ModelHash | None = None
    calm_games: int = 0


FIRST = WatchRow()
"""The row of a configuration that was never evaluated."""


def statistic(cusum: CusumState, level: Level) -> float:
    """Return the CUSUM, weighted by the certainty of the level."""
    return cusum.total * level.certainty(cusum.games)


def severity_of(drop: float, thresholds: Sequence[float]) -> Severity:
    """Return how bad a drop in Elo is; anything below the second threshold is minor."""
    reached = sum(drop >= threshold for threshold in thresholds)
    return SEVERITIES[max(0, reached - 1)]


Rows = Mapping[str, WatchRow]


class ModelPerformanceWatchdog(Controller):
    """Reports regressions, and requests retests of doubtful models; sets no parameter."""

    name: ClassVar[str] = "ModelPerformanceWatchdog"
    row: ClassVar[type[WatchRow]] = WatchRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({MatchesRequested, RegressionDetected, RegressionCleared})

    @handles(EvaluationCompleted)
    def evaluated(self, rows: Rows, event: Event[EvaluationCompleted], states: States) -> Step[WatchRow]:
        """Count the current model's games, and keep another model's match until that model becomes current."""
        row, data, played = rows.get(event.subject) or FIRST, event.data, fixed_match(event.data)
        champion = state_of(states, event.subject).lineage.current
        current = champion if champion and champion.model == data.model else None
        if data.purpose == "retest":
            if current is None or played is None or row.level is None or played.player != row.level.player:
                return Step()
            return self._tested(event, row, row.level, Games.of(played), current)
        if data.purpose != "rating":
            return Step()
        if current is not None:
            return self._count(event, row, played, current)
        return Step({event.subject: row.replace(evaluated=data.model, match=played)})

    @handles(ModelPromoted)
    def promoted(self, rows: Rows, event: Event[ModelPromoted], states: States) -> Step[WatchRow]:
        """Count the match of a new current model, if it was rated before its promotion."""
        row, lineage = rows.get(event.subject) or FIRST, state_of(states, event.subject).lineage
        level = row.level
        if level is not None and row.doubt.total == 0:  # in doubt, drift would excuse more and more
            level = level.drifted(self.settings.feedback.watchdog.drift_elo)
        promoted = row.replace(
            since=(*row.since, *[champion.model for champion in lineage.champions[-2:-1]])[-REMEMBERED:],
            match=None,
            level=level,
            doubt=row.doubt.replace(matches=0),
        )
        match = row.match if event.data.model == row.evaluated else None
        return self._count(event, promoted, match, lineage.champions[-1])

    @handles(ModelRolledBack)
    def rolled_back(self, rows: Rows, event: Event[ModelRolledBack], states: States) -> Step[WatchRow]:
        """Reset the test."""
        row, data = rows.get(event.subject) or FIRST, event.data
        return Step({event.subject: _restored(row, data.to_model, alarm=data.from_model == row.alarmed)})

    def watches(self, rows: Rows, states: States, key: str) -> Sequence[Watched]:
        """Return the evidence against the current model. See ``Controller.watches``."""
        row, settings = rows.get(key) or FIRST, self.settings.feedback.watchdog
        cusum = Watched(
            what="evidence that the champion is weaker than earlier ones (CUSUM)",
            value=None if row.level is None else statistic(row.doubt, row.level),
            threshold=settings.threshold,
            acts="above",
            effect="a regression is reported",
            setting="feedback.watchdog.threshold",
            waits="" if row.level is None else f"{row.doubt.games} games since it was last 0",
        )
        return (cusum,)

    def _count(self, event: Event[Any], row: WatchRow, played: MatchResult | None, current: Champion) -> Step[WatchRow]:
        """Count a match of the current model."""
        if played is None:
            return Step({event.subject: row})
        other, games, since = played.opponent_model, Games.of(played), row.since
        row = row.replace(since=())
        if row.level is not None and other == row.level.opponent:
            return self._tested(event, row, row.level, games, current)
        if row.level is not None and other is None and current.model == row.level.opponent:  # it is the only anchor
            return Step({event.subject: row})
        # Another level begins: at 0 against a champion since the last match, otherwise as measured. It is measured
        # against the random bot when a rollback has removed the only anchor.
        if row.level is not None and other is not None and other in since:
            level = Level(opponent=other)
            for _ in since[since.index(other) :]:
                level = level.drifted(self.settings.feedback.watchdog.drift_elo)
            return self._tested(event, row.replace(doubt=CusumState()), level, games, current)
        begun = {"level": Level.measured(other, games), "doubt": CusumState(), "last_good": current.model}
        return Step({event.subject: row.replace(**begun)})

    def _tested(
        self, event: Event[Any], row: WatchRow, level: Level, games: Games, current: Champion
    ) -> Step[WatchRow]:
        settings, key, model = self.settings.feedback.watchdog, event.subject, current.model
        all_games = Games(row.doubt.games + games.number, row.doubt.points + games.points)
        cusum = _after_games(row.doubt, level, games, settings)
        evidence = statistic(cusum, level)
        row = row.replace(doubt=cusum)
        if evidence >= settings.threshold:
            return _alarm(key, row, model, level, settings)
        if cusum.total == 0:
            return _step_without_alarm(key, row.replace(level=level.after(all_games)), model, games, settings)
        row = row.replace(level=level, calm_games=0)
        if evidence < settings.suspicion * settings.threshold or cusum.matches >= settings.most_matches:
            return Step({key: row})
        retest = MatchesRequested(
            purpose="retest",
            model=model,
            step=current.step,
            opponents=(level.player,),
            games=settings.retest_games,
            seed=derive_seed(self.settings.seed, key, "retest", event.id),
        )
        return Step({key: row}, (Emission(retest),))


def _restored(row: WatchRow, model: ModelHash, *, alarm: bool) -> WatchRow:
    """Reset the test after a rollback.

    Without an alarm an operator chose the model, and it counts as good. After an alarm it is tested like any other,
    because a lucky bad model may have counted as the last good one. If it fails, no model is known to be
    good, and the rollback restores its predecessor. For the anchor itself the level is 0.
    """
    level = row.level if alarm else None
    if row.level is not None and row.level.opponent == model:
        level = Level(opponent=model)
    return row.replace(
        since=(),
        evaluated=None,
        match=None,
        level=level,
        doubt=CusumState(),
        last_good=None if alarm else model,
    )


def _after_games(cusum: CusumState, level: Level, games: Games, settings: WatchdogSettings) -> CusumState:
    """Add games to the evidence against the latest models, which is emptied when the sum falls to zero."""
    score = games.points / games.number
    total = cusum_step(cusum.total, score, games.number, level.elo, settings.design_drop_elo)
    if total == 0:
        return CusumState()
    return CusumState(
        total=total, games=cusum.games + games.number, points=cusum.points + games.points, matches=cusum.matches + 1
    )


def _step_without_alarm(
    key: str, row: WatchRow, model: ModelHash, games: Games, settings: WatchdogSettings
) -> Step[WatchRow]:
    """Record a good model; clear an alarm after ``clear_games`` games."""
    calm = row.calm_games + games.number
    healthy = row.replace(last_good=model, calm_games=calm)
    if row.alarmed is None or calm < settings.clear_games:
        return Step({key: healthy})
    cleared = healthy.replace(alarmed=None)
    return Step({key: cleared}, (Emission(RegressionCleared(model=model)),))


def _alarm(key: str, row: WatchRow, model: ModelHash, level: Level, settings: WatchdogSettings) -> Step[WatchRow]:
    drop = max(0.0, level.elo - Games(row.doubt.games, row.doubt.points).elo)
    detected = RegressionDetected(
        model=model,
        last_good=row.last_good,
        elo_drop=drop,
        severity=severity_of(drop, settings.severity_elo),
        games=row.doubt.games,
        opponent=level.player,
    )
    after = {"level": level, "doubt": CusumState(), "alarmed": model, "calm_games": 0}
    return Step({key: row.replace(**after)}, (Emission(detected),))
