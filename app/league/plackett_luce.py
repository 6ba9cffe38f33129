"""Plackett-Luce: the ratings that explain all games of many players at once.

Places are given out one after the other, the next one to each of the remaining seats in proportion to its strength
10 ** (Elo / 400); so any two seats alone follow Bradley and Terry. Ratings, prior, anchors and covariance are as there.
Sources: R. L. Plackett, Applied Statistics 24 (1975), 193-202; R. D. Luce, Individual Choice Behavior (1959).

A tie counts as every order of the tied seats in equal shares, which for two players is half a win each. That leaves out
what breaking the tie would have told: by so much the information is less (T. A. Louis, Journal of the Royal Statistical
Society B 44 (1982), 226-233). Games that only say who won tie all others, and pull their ratings together.

An agent in several seats is as strong in each; which of its seats comes first says nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from app.core import Elo
from app.league.choices import Choices, choices_of
from app.league.newton import Floats, Point, maximise, sums
from app.league.played import PlayedGame
from app.league.ratings import Ratings
from app.league.scale import ANCHORS, UNKNOWN, RatingPrior, Scale

CHUNK = 1024
"""Games of one kind that are computed together."""

ROUNDING = 1e-9


def fit_plackett_luce(
    games: Iterable[PlayedGame], anchors: Mapping[str, Elo] = ANCHORS, prior: RatingPrior = UNKNOWN
) -> Ratings:
    """Return the ratings of all agents who sat in some games, the anchors included.

    Args:
        games: of any numbers of players, in any order.
        anchors: ratings that are given, by default that of the random bot.
        prior: of the others.
    """
    counted = Counter(_placed(game) for game in games)
    agents = sorted({agent for placed in counted for group in placed for agent in group} | anchors.keys())
    scale = Scale(agents, anchors, prior)
    batches = list(_batches(counted, scale))

    nothing, flat = np.zeros((len(agents), len(agents))), np.zeros(len(agents))

    def likelihood(strengths: Floats) -> Point:
        parts = [batch.likelihood(strengths) for batch in batches]
        value, gradient = sum(part.value for part in parts), sum((part.gradient for part in parts), flat)
        return Point(value, gradient, sum((part.curvature for part in parts), nothing))

    def posterior(free: Floats) -> Point:
        strengths = scale.strengths(free)
        return scale.with_prior(strengths, likelihood(strengths))

    free, top = maximise(posterior, scale.start[scale.free])
    strengths = scale.strengths(free)
    whole = likelihood(strengths).curvature
    missing = sum((batch.missing(strengths) for batch in batches), nothing)
    return scale.ratings(strengths, top.curvature, _information(whole, missing))


def _information(whole: Floats, missing: Floats) -> Floats:
    """Return the information of games with ties [A, A].

    Even shares of the orders are not those that strengths would give: few games, in which an agent ties with many seats
    of another, can seem to withhold more than there is. Then the errors are those of the curvature alone.
    """
    told = whole - missing
    return told if np.all(np.linalg.eigvalsh(told) >= -ROUNDING * np.trace(whole)) else whole


Placed = tuple[tuple[str, ...], ...]


def _placed(game: PlayedGame) -> Placed:
    """Return the agents of a game by their places, first to last; those of one place are tied."""
    places: dict[float, list[str]] = defaultdict(list)
    for agent, result in zip(game.agents, game.returns, strict=True):
        places[result].append(agent)
    return tuple(tuple(sorted(places[result])) for result in sorted(places, reverse=True))


def _batches(counted: Mapping[Placed, int], scale: Scale) -> Iterable["_Batch"]:
    kinds: dict[tuple[int, ...], list[Placed]] = defaultdict(list)
    for placed in sorted(counted):
        kinds[tuple(map(len, placed))].append(placed)
    for sizes, alike in sorted(kinds.items()):
        for start in range(0, len(alike), CHUNK):
            some = alike[start : start + CHUNK]
            seats = np.array([[scale.index[agent] for group in placed for agent in group] for placed in some])
            weights = np.array([counted[placed] for placed in some], dtype=np.float64)
            yield _Batch(seats, weights, choices_of(sizes), len(scale.agents))


class _Batch:
    """G different games with the same ties: the agents by place [G, P], and how often each was played [G]."""

    def __init__(self, seats: NDArray[np.int64], weights: Floats, choices: Choices, agents: int) -> None:
        self._seats, self._weights, self._choices, self._agents = seats, weights, choices, agents

    def likelihood(self, strengths: Floats) -> Point:
        """Return the logarithm of the likelihood as a function of all strengths [A]."""
        own = strengths[self._seats]
        chances, totals = self._choices.chances(own)
        shares = self._choices.shares
        value = float(self._weights @ (own.sum(axis=1) - totals @ shares))
        chosen = shares @ chances  # [G, P]: how often each seat is chosen, by expectation
        gradient = sums(self._seats, self._weights[:, None] * (1 - chosen), self._agents)
        variance = chosen[:, :, None] * np.eye(own.shape[1]) - chances.swapaxes(1, 2) * shares @ chances
        return Point(value, gradient, self._scattered(variance))

    def missing(self, strengths: Floats) -> Floats:
        """Return the information [A, A] that the ties withhold: the variance over their orders of the gradient."""
        chances, _ = self._choices.chances(strengths[self._seats])
        return self._scattered(chances.swapaxes(1, 2) @ self._choices.covariance @ chances)

    def _scattered(self, matrices: Floats) -> Floats:
        """Add up a matrix for the seats of each game [G, P, P] to one for all agents [A, A]."""
        rows, columns = self._seats[:, :, None], self._seats[:, None, :]
        flat = sums(rows * self._agents + columns, self._weights[:, None, None] * matrices, self._agents**2)
        return flat.reshape(self._agents, self._agents)
