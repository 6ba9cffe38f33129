"""A gauntlet in batches of games: split for several processes, and put together again.

Opponents are split as well as games, because a single champion would otherwise keep one process busy and leave the
others idle. A lost batch costs only its own games.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from app.config import GameConfig, Settings
from app.core import FlyballError, ModelHash
from app.evaluation.gauntlet import Opponent
from app.evaluation.matches import MatchGames, MatchStatistics, match_statistics

ATTEMPTS = 2
"""How often a batch that raises is tried."""


class NothingPlayed(FlyballError):
    """All batches of a gauntlet were lost."""


class Batch(Settings):
    """Games ``first`` … ``first + games - 1`` of the match against one opponent; whole rotations."""

    opponent: Opponent
    first: int = Field(ge=0)
    games: int = Field(ge=1)


class BatchSpec(Settings):
    """Which model plays which batch. ``seed`` is the gauntlet's: each opponent and each batch derives its own."""

    store: Path
    config: GameConfig
    model: str = Field(description="a hash, or a built-in player's name")
    batch: Batch
    seed: int = Field(ge=0)
    device: str = "cpu"

    @model_validator(mode="after")
    def _never_itself(self) -> Self:
        if self.batch.opponent.player == self.model:
            raise ValueError(f"{self.model} cannot be its own opponent")
        return self


class BatchResult(Settings):
    """How a batch went."""

    games: MatchGames
    seconds: float = Field(ge=0, description="that its process needed")


class OpponentResult(MatchStatistics):
    """The match against one opponent."""

    opponent: str
    opponent_model: ModelHash | None


class GauntletResult(Settings):
    """The matches in the order they were asked for, but for those of which no batch was played.

    ``lost_games`` were planned and could not be played; ``error`` is why, of the last of them.
    """

    results: tuple[OpponentResult, ...] = Field(min_length=1)
    lost_games: int = Field(default=0, ge=0)
    error: str | None = None
    seconds: float = Field(ge=0, description="of computing, all processes together")


def split(opponents: Sequence[Opponent], batch_games: int, players: int) -> tuple[Batch, ...]:
    """Return the batches of a gauntlet: at most ``batch_games`` each, but at least one rotation of ``players``."""
    size = max(1, batch_games // players) * players
    return tuple(
        Batch(opponent=opponent, first=first, games=min(size, opponent.games - first))
        for opponent in opponents
        for first in range(0, opponent.games, size)
    )


def merge(batches: Sequence[Batch], outcomes: Sequence[BatchResult | FlyballError], players: int) -> GauntletResult:
    """Put a gauntlet together from its batches and what became of each. Raises ``NothingPlayed``."""
    played: dict[Opponent, MatchGames] = {}
    lost, last, seconds = 0, None, 0.0
    for batch, outcome in zip(batches, outcomes, strict=True):
        if isinstance(outcome, BatchResult):
            played[batch.opponent] = played.get(batch.opponent, MatchGames()).plus(outcome.games)
            seconds += outcome.seconds
        else:
            lost, last = lost + batch.games, outcome
    if last is not None and not played:
        raise NothingPlayed(f"None of {lost} games could be played: {last.message}", hint=last.hint)
    results = (
        OpponentResult(opponent=opponent.name, opponent_model=opponent.model, **dict(match_statistics(games, players)))
        for opponent, games in played.items()
    )
    error = None if last is None else str(last)
    return GauntletResult(results=tuple(results), lost_games=lost, error=error, seconds=seconds)


class GauntletSpec(Settings):
    """A pairing of a model with an opponent."""

    store: Path
    config: GameConfig
    model: str = Field(description="a hash, or a built-in player's name")
    opponents: tuple[Opponent, ...] = Field(min_length=1)
    seed: int = Field(ge=0)
    device: str = Field(default="cpu", description="where the networks run")

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The batches that it is played in."""
        return split(self.opponents, self.config.evaluation.batch_games, self.config.players)

    @property
    def parts(self) -> tuple[dict[str, Any], ...]:
        """The batches' specs as JSON objects."""
        whole = self.model_dump(exclude={"opponents"})
        specs = (BatchSpec(**whole, batch=batch) for batch in self.batches)
        return tuple(spec.model_dump(mode="json") for spec in specs)

    def gather(self, parts: Sequence[Mapping[str, Any] | FlyballError]) -> GauntletResult:
        """Put the batches' results together. Raises ``NothingPlayed``."""
        outcomes = [part if isinstance(part, FlyballError) else BatchResult.model_validate(part) for part in parts]
        return merge(self.batches, outcomes, self.config.players)
