"""Agents of a league."""

from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, model_validator

from app.core import RANDOM, Elo
from app.events import LeagueRole, Value

AgentKind = Literal["baseline", "checkpoint"]
_PASSING: frozenset[LeagueRole] = frozenset({"recent"})


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
        """Return whether it stays for ever: baselines, and checkpoints with more than the role of a recent one."""
        return self.kind == "baseline" or not _PASSING.issuperset(self.roles)

    def rated(self, elo: float, stderr: float, matches: int) -> Self:
        """Return it with another rating."""
        return self.model_copy(update={"elo": Elo(elo), "elo_stderr": stderr, "matches": matches})


def baseline(name: str) -> Agent:
    """Return a built-in player; only the random bot's rating is known before any game."""
    if name == RANDOM:
        return Agent(id=name, kind="baseline", elo=Elo(0.0), elo_stderr=0.0)
    return Agent(id=name, kind="baseline")
