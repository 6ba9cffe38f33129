"""Whose games rate models: those whose ratings are told, and what they played among each other.

A rating stands for all games that it rests on only as long as these are remembered, and is comparable with another one
only if both follow from one fit. So nobody leaves who may be rated again, and whoever is rated is so with all others.
The games of everybody else are forgotten: most are of candidates, which are trained against the models before them,
beat these by more than they gain on anybody else, and would stretch the scale from one generation to the next (ADR-014
has the figures).

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
"""How far ratings leave scores unexplained; round robins of connect four and hex showed 0.02 to 0.05 (ADR-014)."""

PRIOR = RatingPrior(deviation=1600.0)
"""So wide that it does not pull in models that are far above the random bot, along a chain of uncertain links."""

SATURATED = 0.9
"""A mean score from which on games against a built-in player tell nothing."""


def saturated(score: float) -> bool:
    """Return whether a mean score, of either side, is so one-sided that more games would tell nothing."""
    return max(score, 1 - score) > SATURATED


def rate(pairs: Iterable[PairTotals], agents: Iterable[str] = (), anchors: Mapping[str, Elo] = ANCHORS) -> Ratings:
    """Return the ratings of all agents named in some totals, of the anchors and of others: costs milliseconds.

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
        return self.model_copy(update={"candidates": candidates, "pairs": tuple(pairs)})

    def ratings(self, hero: str, played: Iterable[PairTotals] = ()) -> Ratings:
        """Fit all games together, and those of a model, which may have finished none."""
        return rate((*self.pairs, *played), agents=(hero,))

    def games(self, played: Iterable[PairTotals] = ()) -> Counter[str]:
        """Return how many games each agent's rating rests on, these included."""
        counted = Counter[str]()
        for pair in (*self.pairs, *played):
            counted.update({pair.first: pair.games, pair.second: pair.games})
        return counted
