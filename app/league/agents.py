"""Who is in a league: agents, and what two of them have played against each other."""

from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from app.core import RANDOM, Elo
from app.events import LeagueRole, MatchResult, Value

AgentKind = Literal["baseline", "checkpoint"]


class Agent(Value):
    """One member of a league.

    Attributes:
        id: a checkpoint's content hash; a built-in player's name.
        step: trainings that made it; a baseline has none.
        elo: None until it is rated; the random bot is at 0.
        elo_stderr: None also where a rating came without one.
        matches: rated games that the rating rests on.
        created_us: when it entered, microseconds since 1970 UTC; a baseline was always there.
        parent: its nearest ancestor in the league.
        roles: why a checkpoint is there.
        retired: it is nobody's opponent any more; what it has played is still known.
    """

    id: str = Field(min_length=1)
    kind: AgentKind
    step: NonNegativeInt | None = None
    elo: Elo | None = None
    elo_stderr: NonNegativeFloat | None = None
    matches: NonNegativeInt = 0
    created_us: NonNegativeInt | None = None
    parent: str | None = None
    roles: tuple[LeagueRole, ...] = ()
    retired: bool = False

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if (self.kind == "checkpoint") != (self.step is not None):
            raise ValueError(f"agent {self.id}: a checkpoint has a step, a baseline has none")
        if self.parent == self.id:
            raise ValueError(f"agent {self.id} is named as its own parent")
        return self

    @property
    def permanent(self) -> bool:
        """Whether it stays for ever: baselines, and checkpoints with more than the role of a recent one."""
        return self.kind == "baseline" or any(role != "recent" for role in self.roles)

    def rated(self, elo: float, stderr: float, matches: int) -> Self:
        """Return it with another rating."""
        return self.model_copy(update={"elo": Elo(elo), "elo_stderr": stderr, "matches": matches})


def baseline(name: str) -> Agent:
    """Return a built-in player; only the random bot's rating is known before any game."""
    if name == RANDOM:
        return Agent(id=name, kind="baseline", elo=Elo(0.0), elo_stderr=0.0)
    return Agent(id=name, kind="baseline")


class HeadToHead(Value):
    """The games of one agent against another, from its side.

    Attributes:
        step: of the latest of the two, when they last met; None between baselines.
        games: how many.
        points: the sum of the games' scores; see ``MatchResult`` for games with more than two players.
    """

    step: NonNegativeInt | None
    games: PositiveInt
    points: NonNegativeFloat

    @model_validator(mode="after")
    def _at_most_a_point_a_game(self) -> Self:
        if self.points > self.games * (1 + 1e-9):
            raise ValueError(f"{self.points} points of {self.games} games: a game gives one at most")
        return self

    @property
    def score(self) -> float:
        """The mean score of a game, in [0, 1]."""
        return min(1.0, self.points / self.games)

    def plus(self, other: "HeadToHead") -> "HeadToHead":
        """Return both together."""
        steps = [step for step in (self.step, other.step) if step is not None]
        return HeadToHead(
            step=max(steps, default=None), games=self.games + other.games, points=self.points + other.points
        )

    def flipped(self) -> "HeadToHead":
        """Return the same games from the other's side."""
        return self.model_copy(update={"points": max(0.0, self.games - self.points)})


def head_to_head(match: MatchResult, step: int | None) -> HeadToHead:
    """Return a match of an evaluation as games of its hero."""
    return HeadToHead(step=step, games=match.games, points=match.score.mean * match.games)
