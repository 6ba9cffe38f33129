"""Plackett-Luce: ratings from the final ranks of games.

A game may have more than two agents. Ranks come about as if the best seat were chosen first, then the next one of those
that are left, and so on. An agent is chosen with a probability in proportion to 10 ** (Elo / 400). Sources: R. D. Luce,
Individual Choice Behavior (1959); R. L. Plackett, Applied Statistics 24 (1975), 193-202.

- A seat is rated, and agents may have several seats (clones). Clones are left out of the set that a seat is chosen
  from, because otherwise an agent would gain and lose by games against itself.
- Equal ranks count as the mean over all their orders; for two agents a draw is then half a win, as in Bradley-Terry's
  model, which is the same for games of two.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np

from flyball.app.core import Elo
from flyball.app.league.bradley_terry import ANCHORS, Quadratic, Scale, maximise
from flyball.app.league.ratings import UNKNOWN, Floats, RatingPrior, Ratings


class RankedGame(NamedTuple):
    """The agents in a game's seats, and the seats' final ranks: the best is 1, equal seats share the better one."""

    agents: tuple[str, ...]
    ranks: tuple[int, ...]
    event: int | None = None  # games of one event depend on each other, like those from one start; None: independent


class _Choice(NamedTuple):
    """A seat's agent, preferred to the agents of other seats."""

    chosen: str
    others: tuple[str, ...]
    weight: float  # share of the orders of equal ranks in which the agent was chosen from among these others


def fit_plackett_luce(
    games: Iterable[RankedGame], anchors: Mapping[str, Elo] = ANCHORS, prior: RatingPrior = UNKNOWN
) -> Ratings:
    """Return the ratings of all agents in the games and the anchors.

    The standard errors take events as independent of each other.

    Args:
        games: games with at least two seats.
        anchors: ratings that are given, by default that of the random bot.
        prior: prior of all ratings that are not given.
    """
    events: dict[tuple[int | None, int], int] = {}
    choices: list[tuple[int, _Choice]] = []  # each with the number of its event
    for number, game in enumerate(games):
        event = events.setdefault((game.event, number if game.event is None else 0), len(events))
        choices += [(event, choice) for choice in _choices(game)]
    agents = sorted({name for _, choice in choices for name in (choice.chosen, *choice.others)} | {*anchors})
    index = {agent: number for number, agent in enumerate(agents)}
    scale = Scale(agents, anchors, prior)
    chosen = np.array([index[choice.chosen] for _, choice in choices], dtype=np.int64)
    weights = np.array([choice.weight for _, choice in choices], dtype=np.float64)
    seats = np.zeros((len(choices), len(agents)))  # seats of each agent in a choice
    for row, (_, choice) in enumerate(choices):
        for name in (choice.chosen, *choice.others):
            seats[row, index[name]] += 1

    def shares(strengths: Floats) -> tuple[Floats, Floats]:
        """Return the probabilities [C, A] that agents are chosen, and the logarithms [C] of their normalising sums."""
        top = strengths.max()
        powers = seats * np.exp(strengths - top)
        sums = powers.sum(axis=1)
        return powers / sums[:, None], np.log(sums) + top

    def posterior(free: Floats) -> Quadratic:
        strengths = scale.strengths(free)
        probabilities, logarithms = shares(strengths)
        value = float(weights @ (strengths[chosen] - logarithms))
        gradient = np.bincount(chosen, weights, len(agents)) - weights @ probabilities
        curvature = np.diag(weights @ probabilities) - (probabilities * weights[:, None]).T @ probabilities
        return scale.with_prior(strengths, Quadratic(value, gradient, curvature))

    free, maximum = maximise(posterior, scale.start[scale.free])
    strengths = scale.strengths(free)
    surplus = -weights[:, None] * shares(strengths)[0]
    surplus[np.arange(len(chosen)), chosen] += weights
    by_event = np.zeros((len(events), len(agents)))
    np.add.at(by_event, np.array([event for event, _ in choices], dtype=np.int64), surplus)
    return scale.ratings(strengths, maximum.curvature, by_event.T @ by_event)


def _choices(game: RankedGame) -> Iterator[_Choice]:
    for seat, (agent, rank) in enumerate(zip(game.agents, game.ranks, strict=True)):
        others = [
            (other, other_rank)
            for number, (other, other_rank) in enumerate(zip(game.agents, game.ranks, strict=True))
            if number != seat and other != agent
        ]
        worse = [other for other, other_rank in others if other_rank > rank]
        equal = [other for other, other_rank in others if other_rank == rank]
        for size in range(len(equal) + 1):
            weight = 1 / ((len(equal) + 1) * comb(len(equal), size))
            for later in combinations(equal, size):
                if worse or later:
                    yield _Choice(agent, (*worse, *later), weight)
