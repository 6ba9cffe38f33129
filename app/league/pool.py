"""Whose games rate models: those whose ratings are told, and what they played among each other.

A rating stands for all games that it rests on only as long as these are remembered, and is comparable with another one
only if both follow from one fit. So nobody leaves who may be rated again, and whoever is rated is so with all others.
The games of everybody else are forgotten: most are of candidates, which are trained against the models before them,
beat these by more than they gain on anybody else, and would stretch the scale from one generation to the next (ADR-014
has the figures).
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Self

from app.events import Value
from app.league.bradley_terry import fit_bradley_terry
from app.league.ratings import Ratings
from app.league.totals import PairTotals, total

CANDIDATES = 2
"""Models rated last that may be promoted yet: one, and another, if somebody asks for one more before the verdict."""


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
        """Fit all games together, and those of a model, which may have finished none: costs milliseconds."""
        return fit_bradley_terry((*self.pairs, *played), agents=(hero,))

    def games(self, played: Iterable[PairTotals] = ()) -> Counter[str]:
        """Return how many games each agent's rating rests on, these included."""
        counted = Counter[str]()
        for pair in (*self.pairs, *played):
            counted.update({pair.first: pair.games, pair.second: pair.games})
        return counted
