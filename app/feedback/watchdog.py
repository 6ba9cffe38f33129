"""ModelPerformanceWatchdog: notices when the models that get promoted play worse than one before them did.

A sequential test, Page's CUSUM for Bernoulli trials, on the rating games of every promoted model against opponents of
known rating: the random bot and an old snapshot. The expected score follows from the *reference*, a running mean of the
ratings of promoted models (their maximum would drift up with the noise); it stands still once evidence gathers. The
alternative is a drop of ``design_drop_elo``. As long as nothing is wrong the sum keeps coming back to zero, so the
model promoted when it last was there is the last good one.

Source: E. S. Page, Biometrika 41 (1954), 100-115.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import ClassVar

from app.config.feedback import WatchdogSettings
from app.core import Elo, ModelHash, expected_score
from app.events import (
    Emission,
    EvaluationCompleted,
    Event,
    MatchResult,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    RegressionCleared,
    RegressionDetected,
    Row,
    Severity,
    Step,
)
from app.feedback.controller import Controller
from app.feedback.state import FeedbackState

MOVING = "champion"
"""The opponent that is no anchor: it gets worse together with the candidates."""

NEVER = 1e-12

SEVERITIES: tuple[Severity, ...] = ("minor", "moderate", "severe", "critical")


class WatchRow(Row, frozen=True):
    """One configuration's test.

    Attributes:
        current: the model promoted last, or gone back to.
        evaluated: the latest evaluated model and its matches; they count when it is promoted.
        reference: running mean of the ratings of promoted models since the last rollback.
        statistic: the CUSUM.
        games: rated games since the statistic was last zero.
        last_good: the model promoted when it was.
        alarmed: the model of the alarm that is not cleared yet.
        calm_games: rated games without evidence since the alarm.
    """

    current: ModelHash | None = None
    evaluated: ModelHash | None = None
    elo: Elo = Elo(0.0)
    matches: tuple[MatchResult, ...] = ()
    reference: Elo | None = None
    statistic: float = 0.0
    games: int = 0
    last_good: ModelHash | None = None
    alarmed: ModelHash | None = None
    calm_games: int = 0


FIRST = WatchRow()
"""The row of a configuration that was never evaluated."""


def cusum_step(statistic: float, score: float, games: int, difference: float, drop: float) -> float:
    """Add games to Page's statistic: max(0, S + sum of log-likelihood ratios of the drop).

    Args:
        statistic: S so far.
        score: mean score of the games, draws one half.
        games: how many.
        difference: reference rating minus the opponent's, Elo.
        drop: Elo that the alternative is weaker.
    """
    before, after = _possible(expected_score(difference)), _possible(expected_score(difference - drop))
    ratio = score * log(after / before) + (1 - score) * log((1 - after) / (1 - before))
    return max(0.0, statistic + games * ratio)


def _possible(score: float) -> float:
    """Keep an expected score off 0 and 1, where thousands of Elo round it to: nothing is certain."""
    return min(1 - NEVER, max(NEVER, score))


def severity_of(drop: float, thresholds: Sequence[float]) -> Severity:
    """Return how bad a drop in Elo is; anything below the second threshold is minor."""
    reached = sum(drop >= threshold for threshold in thresholds)
    return SEVERITIES[max(0, reached - 1)]


class ModelPerformanceWatchdog(Controller[WatchRow]):
    """Observes; sets no knob."""

    name: ClassVar[str] = "ModelPerformanceWatchdog"
    row: ClassVar[type[WatchRow]] = WatchRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset({EvaluationCompleted, ModelPromoted, ModelRolledBack})
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({RegressionDetected, RegressionCleared})

    def step(
        self,
        rows: Mapping[str, WatchRow],
        event: Event[Payload],
        states: Mapping[str, FeedbackState],  # noqa: ARG002 - the protocol's argument
    ) -> Step[WatchRow]:
        """Fold one event."""
        row = rows.get(event.subject) or FIRST
        match event.data:
            case EvaluationCompleted(purpose="rating") as data:
                evaluated = {"evaluated": data.model, "elo": data.elo, "matches": data.results}
                return self._counted(event.subject, row.model_copy(update=evaluated))
            case ModelPromoted(model=model):
                return self._counted(event.subject, row.model_copy(update={"current": model}))
            case ModelRolledBack(to_model=model):
                reset = {"reference": None, "statistic": 0.0, "games": 0, "matches": (), "evaluated": None}
                return Step({event.subject: row.model_copy(update={**reset, "current": model})})
        return Step()

    def _counted(self, key: str, row: WatchRow) -> Step[WatchRow]:
        """Count the matches of the current model: one that an operator promoted is rated only afterwards."""
        if row.current is None or row.current != row.evaluated:
            return Step({key: row})
        return self._judged(key, row, row.current)

    def _judged(self, key: str, row: WatchRow, model: ModelHash) -> Step[WatchRow]:
        settings = self.settings.feedback.watchdog
        if row.reference is None:
            return Step({key: row.model_copy(update={"reference": row.elo, "last_good": model, "matches": ()})})
        tested = _tested(row, row.reference, settings)
        if tested.statistic >= settings.threshold:
            return _alarm(key, tested, model, row.reference - row.elo, settings)
        quiet = tested.statistic < settings.threshold / 2
        reference = row.reference + settings.reference_weight * (row.elo - row.reference) if quiet else row.reference
        update: dict[str, object] = {"reference": Elo(reference), "matches": ()}
        if tested.statistic > 0:
            return Step({key: tested.model_copy(update={**update, "calm_games": 0})})
        calm = row.calm_games + sum(match.games for match in row.matches)
        healthy = tested.model_copy(update={**update, "games": 0, "last_good": model, "calm_games": calm})
        if row.alarmed is None or calm < settings.clear_games:
            return Step({key: healthy})
        cleared = healthy.model_copy(update={"alarmed": None})
        return Step({key: cleared}, (Emission(RegressionCleared(model=model)),))


def _tested(row: WatchRow, reference: Elo, settings: WatchdogSettings) -> WatchRow:
    statistic, games = row.statistic, row.games
    for match in row.matches:
        if match.opponent != MOVING and match.opponent_elo is not None:
            difference = reference - match.opponent_elo
            score, drop = match.score.mean, settings.design_drop_elo
            statistic = cusum_step(statistic, score, match.games, difference, drop)
            games += match.games
    return row.model_copy(update={"statistic": statistic, "games": games})


def _alarm(key: str, row: WatchRow, model: ModelHash, drop: float, settings: WatchdogSettings) -> Step[WatchRow]:
    drop = max(0.0, drop)
    detected = RegressionDetected(
        model=model,
        last_good=row.last_good,
        elo_drop=drop,
        severity=severity_of(drop, settings.severity_elo),
        games=max(1, row.games),
    )
    after = {"statistic": 0.0, "games": 0, "alarmed": model, "calm_games": 0, "matches": ()}
    return Step({key: row.model_copy(update=after)}, (Emission(detected),))
