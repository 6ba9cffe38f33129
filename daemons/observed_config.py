"""A configuration in the observer: its current model, its ratings, and the games that they rest on."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flyball.app.core import EventId, ModelHash
from flyball.app.events import AgentRating, EloUpdated, EvaluationCompleted, MatchResult, Payload
from flyball.app.events.payload import Purpose
from flyball.app.league.pool import Pool, rate
from flyball.app.league.ratings import Estimate
from flyball.app.league.totals import totals_of
from flyball.app.observing.mapping import ObservedEvaluation
from flyball.daemons.evaluation import RECENT, changed_ratings

MOST_OPPONENTS = 64
"""Latest opponents of a configuration whose games are remembered for ratings."""


class LatestEvaluation(NamedTuple):
    """A model's latest published evaluation, and its number of games."""

    id: EventId
    games: int


class ObservedConfig:
    """The observer's state of a configuration.

    A fit of ratings takes milliseconds, and the past of a loop may have thousands of results. So results that are read
    together are fitted together, and the ratings of bots and champions follow at the end of a look.

    Attributes:
        current: the current model.
        estimates: the latest published rating of each model and bot.
        evaluations: the latest evaluation of each model.
        unsettled: id of the latest result that may have changed the ratings of bots and champions; None once they
            are published.
    """

    def __init__(self, bots: Sequence[str]) -> None:
        self.current: ModelHash | None = None
        self.estimates: dict[str, Estimate] = {}
        self.evaluations: dict[str, LatestEvaluation] = {}
        self.unsettled: EventId | None = None
        self._bots, self._pool = bots, Pool()
        self._fitted: Mapping[str, Estimate] = {}
        self._evaluated: set[tuple[ModelHash, int]] = set()
        self._opponents: dict[str, None] = {}  # in order of their latest games
        self._champions: dict[str, None] = {}

    def purpose(self, observed: ObservedEvaluation) -> Purpose:
        """Return what a result is for.

        A model's first result rates it. Further ones against the current model decide about it, and others refine
        ratings.
        """
        evaluated = (observed.model, observed.step)
        if evaluated not in self._evaluated:
            self._evaluated.add(evaluated)
            return "rating"
        return "gate" if observed.opponent == self.current else "tournament"

    def fit(self, results: Sequence[tuple[ModelHash, MatchResult]]) -> None:
        """Fit ratings to new results together with all games that are remembered."""
        played = [pair for model, match in results for pair in totals_of(model, (match,))]
        self._fitted = rate((*self._pool.pairs, *played), [model for model, _ in results]).comparable()

    def rated(self, data: EvaluationCompleted) -> EvaluationCompleted:
        """Return a result that was fitted, with the ratings of its model and its opponents."""
        elos = {agent: estimate.elo for agent, estimate in self._fitted.items()}
        results = tuple(match.replace(opponent_elo=elos.get(match.player)) for match in data.results)
        elo, stderr = self._fitted[data.model]
        return data.replace(results=results, elo=elo, elo_stderr=stderr)

    def remember(self, data: EvaluationCompleted) -> None:
        """Add a result to the games that rate models."""
        for match in data.results:
            self._opponents.pop(match.player, None)
            self._opponents[match.player] = None
        for old in list(self._opponents)[:-MOST_OPPONENTS]:
            del self._opponents[old]
        members = {*self._bots, *self._opponents, *self._champions}
        self._pool = self._pool.after(totals_of(data.model, data.results), members, data.model)

    def changed(self) -> tuple[AgentRating, ...]:
        """Fit all remembered games; return the ratings of bots and latest champions that differ from published ones."""
        published = {agent: self.estimates.get(agent) for agent in (*self._bots, *self._champions)}
        return changed_ratings(rate(self._pool.pairs).comparable(), self._pool, published)

    def note(self, event_id: EventId, data: Payload) -> None:
        """Note ratings that are published."""
        match data:
            case EvaluationCompleted():
                self.estimates[data.model] = Estimate(data.elo, data.elo_stderr)
                self.evaluations[data.model] = LatestEvaluation(event_id, sum(match.games for match in data.results))
            case EloUpdated(ratings=ratings):
                self.estimates |= {rating.agent: Estimate(rating.elo, rating.elo_stderr or 0.0) for rating in ratings}

    def promote(self, model: ModelHash) -> None:
        """Note that a model is current."""
        self.current = model
        self._champions.pop(model, None)
        self._champions[model] = None
        for old in list(self._champions)[:-RECENT]:
            del self._champions[old]
