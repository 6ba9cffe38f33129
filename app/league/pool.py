"""The pool: agents whose mutual games give the published ratings.

Two ratings are comparable only if they follow from one fit of games that are all remembered. So an agent stays in the
pool as long as it may be rated again, and all its members are rated together. The games of all other agents are
forgotten. Most are games of candidates, which are trained against their predecessors and beat them by more than they
gain on other agents; these games would stretch the scale with each generation (ADR-018).

Learned models are rated by their games against each other. A bot beats any model now and then, because of openings and
noise, so a bot's games count only against models against which it scores a tenth or more. These games place the bot
and, for the random bot, the zero of the scale.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Self

from flyball.app.core import Elo, elo_lead, is_model, wilson_interval
from flyball.app.events import Row
from flyball.app.events.payload import Bound
from flyball.app.league.bradley_terry import ANCHORS, fit_bradley_terry
from flyball.app.league.ratings import Estimate, RatingPrior, Ratings
from flyball.app.league.totals import PairTotals, total

CANDIDATES = 2  # newly rated models that may still be promoted: one, and another requested before its verdict
MISFIT = 0.03  # standard deviation of a pair's true score about the fit; round robins showed 0.02 to 0.05 (ADR-018)
PRIOR = RatingPrior(deviation=1600.0)  # so wide that it does not pull strong models towards the random bot
SATURATED = 0.9  # mean score beyond which games against a bot say almost nothing
OUT_OF_REACH = 0.98  # mean score beyond which they say only who is stronger


def saturated(score: float) -> bool:
    """Return whether a mean score is too one-sided, near 0 or 1, to learn from."""
    return max(score, 1 - score) > SATURATED


def out_of_reach(
    totals: Collection[PairTotals], anchors: Collection[str] = tuple(ANCHORS)
) -> dict[tuple[str, Bound], list[PairTotals]]:
    """Return the bots that win, or lose, almost all games against every model.

    The keys are a bot and the side of the models' ratings on which its own lies; the values are its totals against
    them. Anchors are left out, because their ratings are given.
    """
    games_of: dict[str, list[PairTotals]] = {}
    for pair in totals:
        by_bot = pair if is_model(pair.second) else pair.flipped
        if is_model(by_bot.second) and not is_model(by_bot.first) and by_bot.first not in anchors:
            games_of.setdefault(by_bot.first, []).append(by_bot)
    sides: dict[tuple[str, Bound], list[PairTotals]] = {}
    for bot, games in games_of.items():
        if min(pair.mean for pair in games) > OUT_OF_REACH:
            sides[bot, "above"] = games
        elif max(pair.mean for pair in games) < 1 - OUT_OF_REACH:
            sides[bot, "below"] = games
    return sides


def rate(pairs: Iterable[PairTotals], agents: Iterable[str] = (), anchors: Mapping[str, Elo] = ANCHORS) -> Ratings:
    """Return the ratings of ``agents``, the anchors, and all agents with games.

    Saturated games against bots count only where nothing else connects two agents, the least saturated
    first (Kruskal's algorithm). Otherwise the models that beat such a bot would be rated as if they had no games. Games
    of bots that are out of reach are left out, because they inform about nobody's strength.
    """
    counted, saturating = list[PairTotals](), list[PairTotals]()
    totals = total(pairs)
    unrated = {bot for bot, _ in out_of_reach(totals, anchors)}
    for pair in totals:
        if not unrated.isdisjoint((pair.first, pair.second)):
            continue
        models = is_model(pair.first) and is_model(pair.second)
        (counted if models or not saturated(pair.mean) else saturating).append(pair)
    leads_to: dict[str, str] = {}  # another agent of each agent's group, or itself at the end of the chain

    def connect(pair: PairTotals) -> bool:
        """Join the groups of two agents; return whether they were apart."""
        ends = []
        for end in (pair.first, pair.second):
            while (other := leads_to.setdefault(end, end)) != end:
                end = other  # noqa: PLW2901 - it follows the chain
            ends.append(end)
        leads_to[ends[0]] = ends[1]
        return ends[0] != ends[1]

    for pair in counted:
        connect(pair)
    counted += [pair for pair in sorted(saturating, key=lambda pair: abs(pair.mean - 0.5)) if connect(pair)]
    return fit_bradley_terry(counted, anchors, PRIOR, agents, MISFIT)


class Pool(Row, frozen=True):
    """Games of the agents that are rated together."""

    # latest rated models, newest last, that are not rated again unless they are promoted
    candidates: tuple[str, ...] = ()
    # totals of all games among candidates and the agents that are rated again, ordered by names
    pairs: tuple[PairTotals, ...] = ()

    def after(self, played: Iterable[PairTotals], members: Collection[str], candidate: str | None = None) -> Self:
        """Add games, and drop those of agents that are no longer rated.

        Games among ``members`` (of the league, or latest champions) and candidates stay. ``members`` are rated again
        with new games. ``candidate`` is the model that the new games rate, if any; it may be a member.
        """
        others = (name for name in self.candidates if name != candidate)
        latest = [name for name in (*others, candidate) if name is not None and name not in members]
        candidates = tuple(latest[-CANDIDATES:])
        present = {*members, *candidates}
        pairs = (pair for pair in total((*self.pairs, *played)) if pair.first in present and pair.second in present)
        return self.replace(candidates=candidates, pairs=tuple(pairs))

    def ratings(self, hero: str, played: Iterable[PairTotals] = ()) -> Ratings:
        """Fit all games together; ``hero`` is rated even without games."""
        return rate((*self.pairs, *played), agents=(hero,))

    def bounds(
        self, ratings: Mapping[str, Estimate], played: Iterable[PairTotals] = ()
    ) -> dict[str, tuple[Bound, Elo]]:
        """Return bounds on out-of-reach bots' ratings: the most extreme of those by the scores against each model."""
        bounds_by_bot: dict[str, tuple[Bound, Elo]] = {}
        for (bot, side), games in out_of_reach(total((*self.pairs, *played))).items():
            end, extreme = (0, max) if side == "above" else (1, min)
            bounds = [
                ratings[pair.second].elo + elo_lead(wilson_interval(pair.mean, pair.games)[end])
                for pair in games
                if pair.second in ratings
            ]
            if bounds:
                bounds_by_bot[bot] = side, Elo(extreme(bounds))
        return bounds_by_bot

    def games(self, played: Iterable[PairTotals] = ()) -> Counter[str]:
        """Return the number of games behind each agent's rating, ``played`` included."""
        counted = Counter[str]()
        for pair in (*self.pairs, *played):
            counted.update({pair.first: pair.games, pair.second: pair.games})
        return counted
