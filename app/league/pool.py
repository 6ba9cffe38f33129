"""Whose games rate models: those who played last, and what they played among each other.

One fit of all games that were ever played would rate too high: candidates are trained against the models before them
and beat these by more than they gain on anybody else, and such games, one generation after the other, add up (ADR-014
has the figures). In a small pool the games against lasting anchors, the same for many generations, weigh enough.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self

from app.core import Elo
from app.events import Value
from app.league.bradley_terry import fit_bradley_terry
from app.league.league import League
from app.league.ratings import Ratings
from app.league.scale import NOTHING, UNKNOWN, RatingPrior
from app.league.totals import PairTotals, total

POOL = 24
"""Agents: the built-in players, two lasting anchors, the latest champions, and candidates lately rated against them."""


class Pool(Value):
    """Agents whose games rate models.

    Attributes:
        agents: by when they played last, the latest last; anybody's opponents stay as long as they are that.
        pairs: totals of all games among them, by names.
    """

    agents: tuple[str, ...] = ()
    pairs: tuple[PairTotals, ...] = ()

    def after(self, hero: str, played: Iterable[PairTotals]) -> Self:
        """Take in a model's games; who has not played for the longest time leaves, and its games with it."""
        new = tuple(played)
        met = dict.fromkeys(name for pair in new for name in (pair.first, pair.second) if name != hero)
        agents = (*(name for name in self.agents if name not in met and name != hero), *met, hero)[-POOL:]
        pairs = total((*self.pairs, *new))
        known = {*agents}
        kept = tuple(pair for pair in pairs if pair.first in known and pair.second in known)
        return self.model_copy(update={"agents": agents, "pairs": kept})

    def and_also(self, played: Iterable[PairTotals]) -> Self:
        """Take in games among those who are here; nobody comes or leaves for them."""
        known = {*self.agents}
        new = (pair for pair in played if pair.first in known and pair.second in known)
        return self.model_copy(update={"pairs": total((*self.pairs, *new))})

    def ratings(
        self, league: League, played: Iterable[PairTotals] = (), priors: Mapping[str, RatingPrior] = NOTHING
    ) -> Ratings:
        """Fit all games together, on the scale that the league's lasting anchors carry on: costs milliseconds.

        Args:
            league: of the configuration.
            played: games that are fitted as well, of others too.
            priors: what is known of these others.
        """
        known = {**dict.fromkeys(self.agents, UNKNOWN), **priors, **pinned(league)}
        met = {*self.agents, *priors}
        return fit_bradley_terry((*self.pairs, *played), priors={name: known[name] for name in met})

    def games(self) -> Counter[str]:
        """Return how many games each agent's rating rests on."""
        counted = Counter[str]()
        for pair in self.pairs:
            counted.update({pair.first: pair.games, pair.second: pair.games})
        return counted


def pinned(league: League) -> dict[str, RatingPrior]:
    """Return what is known of lasting anchors from games that the pool has forgotten, or will: all but the newest.

    When an anchor gets a successor, its rating stays what was published last, with the error that it had then.
    """
    return {
        agent.id: RatingPrior(Elo(agent.elo), agent.elo_stderr)
        for agent in league.lasting[:-1]
        if agent.elo is not None and agent.elo_stderr
    }
