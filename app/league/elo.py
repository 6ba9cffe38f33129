"""Online Elo: game by game in the order of play, for two players and for many.

A match is never averaged: K (mean score - expected) moves 75 of 100 games no further than one, and K times the number
of games overshoots. Ratings of constant players wander by some 50 Elo at K = 32, so that nothing is decided by them;
the batch fits (``bradley_terry``, ``plackett_luce``) are for that.
"""

from collections.abc import Iterable, Mapping
from typing import Self

from app.core import FlyballError, expected_score
from app.events import Value
from app.league.played import PlayedGame

K_FACTOR = 32.0


class UnratedAgent(FlyballError):
    """A game names an agent that has no rating."""


def elo_changes(ratings: Mapping[str, float], game: PlayedGame, k: float = K_FACTOR) -> dict[str, float]:
    """Return by how much one game changes the rating of each agent in it.

    Every pair of seats is a game of two, worth K / (players - 1); with two players this is Elo's rule. All pairs are
    compared at the ratings before the game. Seats of the same agent are not compared with each other: nobody gains or
    loses by meeting itself. An agent in several seats is compared seat by seat, and its changes add up.
    """
    seats, changes = list(zip(game.agents, game.returns, strict=True)), dict.fromkeys(game.agents, 0.0)
    for index, (first, own) in enumerate(seats):
        for second, other in seats[index + 1 :]:
            if first != second:
                score = (own > other) + (own == other) / 2
                change = k / (len(seats) - 1) * (score - expected_score(ratings[first] - ratings[second]))
                changes[first] += change
                changes[second] -= change
    return changes


class EloTable(Value):
    """Online ratings.

    Attributes:
        ratings: of each agent.
        fixed: agents whose rating never moves: the built-ins that anchor the scale.
    """

    ratings: dict[str, float]
    fixed: frozenset[str]

    def joined(self, agent: str, elo: float) -> Self:
        """Return the table with another agent; one that is rated keeps its rating."""
        return self.replace(ratings={agent: elo, **self.ratings})

    def after(self, games: Iterable[PlayedGame], k: float = K_FACTOR) -> Self:
        """Return the table after some games, in their order. Raises ``UnratedAgent``."""
        ratings = dict(self.ratings)
        for game in games:
            if unrated := sorted(set(game.agents) - ratings.keys()):
                raise UnratedAgent(
                    f"{unrated[0]} has played but has no rating.", hint="Let it join the table with its first rating."
                )
            for agent, change in elo_changes(ratings, game, k).items():
                ratings[agent] += 0.0 if agent in self.fixed else change
        return self.replace(ratings=ratings)
