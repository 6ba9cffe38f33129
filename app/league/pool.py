"""The pool: agents whose mutual games give the published ratings.

Two ratings are comparable only if they follow from one fit of games that are all remembered. So an agent stays in the
pool as long as it may be rated again, and all its members are rated together. The games of all other agents are
forgotten. Most are games of candidates, which are trained against their predecessors and beat them by more than they
gain on other agents; these games would stretch the scale with each generation (ADR-017).

Learned models are rated by their games against each other. A bot beats any model now and then, because of openings and
noise, so a bot's games count only against models against which it scores a tenth or more. These games place the bot
and, for the random bot, the zero of the scale.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Self

from app.core import Elo, is_model
from app.events import Row
from app.league.bradley_terry import ANCHORS, fit_bradley_terry
from app.league.ratings import RatingPrior, Ratings
from app.league.totals import PairTotals, total

CANDIDATES = 2  # newly rated models that may still be promoted: one, and another requested before its verdict
MISFIT = 0.03  # standard deviation of a pair's true score about the fit; round robins showed 0.02 to 0.05 (ADR-017)
PRIOR = RatingPrior(deviation=1600.0)  # so wide that it does not pull strong models towards the random bot
SATURATED = 0.9  # mean score beyond which games against a bot say almost nothing


def saturated(score: float) -> bool:
    """Return whether a mean score is too one-sided to learn from.

    The side does not matter: a score near 0 is as saturated as one near 1.
    """
    return max(score, 1 - score) > SATURATED


def rate(pairs: Iterable[PairTotals], agents: Iterable[str] = (), anchors: Mapping[str, Elo] = ANCHORS) -> Ratings:
    """Return the ratings of ``agents``, the anchors, and all agents with games.

    Saturated games against bots count only where nothing else connects two agents, the least saturated
    first (Kruskal's algorithm). Otherwise the models that beat such a bot would be rated as if they had no games.
    """
    counted, saturating = list[PairTotals](), list[PairTotals]()
    for pair in total(pairs):
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

    def after(self, played: Iterable[PairTotals], known: Collection[str], candidate: str | None = None) -> Self:
        """Add games, and drop those of agents that are no longer rated.

        Kept are the games among ``known`` agents and candidates. ``known`` agents (members, latest champions) are rated
        again with new games. ``candidate`` is the model that the new games rate, if any; it may be a known agent.
        """
        others = (name for name in self.candidates if name != candidate)
        latest = [name for name in (*others, candidate) if name is not None and name not in known]
        candidates = tuple(latest[-CANDIDATES:])
        present = {*known, *candidates}
        pairs = (pair for pair in total((*self.pairs, *played)) if pair.first in present and pair.second in present)
        return self.replace(candidates=candidates, pairs=tuple(pairs))

    def ratings(self, hero: str, played: Iterable[PairTotals] = ()) -> Ratings:
        """Fit all games together; ``hero`` is rated even without games."""
        return rate((*self.pairs, *played), agents=(hero,))

    def games(self, played: Iterable[PairTotals] = ()) -> Counter[str]:
        """Return the number of games behind each agent's rating, ``played`` included."""
        counted = Counter[str]()
        for pair in (*self.pairs, *played):
            counted.update({pair.first: pair.games, pair.second: pair.games})
        return counted
