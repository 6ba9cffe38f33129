"""The pool: the agents whose games among each other give the published ratings.

Two ratings are comparable only if they follow from one fit of games that are all remembered. So an agent stays in the
pool as long as it may be rated again, and all its members are rated together. The games of all other agents are
forgotten. Most are games of candidates, which are trained against their predecessors and beat them by more than they
gain on other agents; these games would stretch the scale with each generation (ADR-017).

Learned models are rated by their games against each other. A built-in player takes some games off everybody, because
of openings and noise, so its games count only against models that it scores a tenth or more against: these place it,
and with the random bot the zero.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Self, get_args

from app.config import Builtin
from app.core import Elo
from app.events import Value
from app.league.bradley_terry import fit_bradley_terry
from app.league.ratings import Ratings
from app.league.scale import ANCHORS, RatingPrior
from app.league.totals import PairTotals, total

CANDIDATES = 2
"""Models rated last that may be promoted yet: one, and another, if somebody asks for one more before the verdict."""

BUILTINS: frozenset[str] = frozenset(get_args(Builtin))

MISFIT = 0.03
"""Standard deviation of a pair's true score about the fit; round robins showed 0.02 to 0.05 (ADR-017)."""

PRIOR = RatingPrior(deviation=1600.0)
"""Standard deviation of the prior, so wide that it does not pull strong models towards the random bot."""

SATURATED = 0.9
"""Mean score beyond which games against a built-in player say almost nothing."""


def saturated(score: float) -> bool:
    """Return whether either side's mean score is too one-sided to learn from more games."""
    return max(score, 1 - score) > SATURATED


def rate(pairs: Iterable[PairTotals], agents: Iterable[str] = (), anchors: Mapping[str, Elo] = ANCHORS) -> Ratings:
    """Return the ratings of all agents in some totals, of the anchors and of others.

    Saturated games against built-in players count only where nothing else connects two agents, the least saturated
    first (Kruskal's algorithm). Without any, those who beat such a player would be rated as if they had no games.
    """
    telling, saturating = list[PairTotals](), list[PairTotals]()
    for pair in total(pairs):
        (saturating if saturated(pair.mean) and BUILTINS & {pair.first, pair.second} else telling).append(pair)
    joined: dict[str, str] = {}
    for pair in telling:
        _connect(joined, pair)
    needed = [pair for pair in sorted(saturating, key=lambda pair: abs(pair.mean - 0.5)) if _connect(joined, pair)]
    return fit_bradley_terry([*telling, *needed], anchors, PRIOR, agents, MISFIT)


def _connect(joined: dict[str, str], pair: PairTotals) -> bool:
    """Connect two agents; return whether nothing did before. Each agent leads to another of its group, or to itself."""

    def group(agent: str) -> str:
        while (other := joined.setdefault(agent, agent)) != agent:
            agent = other
        return agent

    first, second = group(pair.first), group(pair.second)
    joined[first] = second
    return first != second


class Pool(Value):
    """Games that rate models.

    Attributes:
        candidates: models rated last, the latest last, that nobody will rate again unless they are promoted.
        pairs: totals of all games among these and those who are rated again, by names.
    """

    candidates: tuple[str, ...] = ()
    pairs: tuple[PairTotals, ...] = ()

    def after(self, played: Iterable[PairTotals], known: Collection[str], candidate: str | None = None) -> Self:
        """Take in games, and forget those of whoever is neither known nor a candidate.

        Args:
            played: the games.
            known: who is rated again whenever there are new games: members of the league and the latest champions.
            candidate: a model that was rated for its own sake; it may be known.
        """
        others = (name for name in self.candidates if name != candidate)
        latest = (name for name in (*others, candidate) if name is not None and name not in known)
        candidates = tuple(latest)[-CANDIDATES:]
        present = {*known, *candidates}
        pairs = (pair for pair in total((*self.pairs, *played)) if pair.first in present and pair.second in present)
        return self.replace(candidates=candidates, pairs=tuple(pairs))

    def ratings(self, hero: str, played: Iterable[PairTotals] = ()) -> Ratings:
        """Fit all games together, including those of a model that may have none."""
        return rate((*self.pairs, *played), agents=(hero,))

    def games(self, played: Iterable[PairTotals] = ()) -> Counter[str]:
        """Return how many games each agent's rating rests on, these included."""
        counted = Counter[str]()
        for pair in (*self.pairs, *played):
            counted.update({pair.first: pair.games, pair.second: pair.games})
        return counted
