"""Whom a new model plays: the random bot, the champion and a recent snapshot."""

from typing import Literal, Self

from pydantic import Field, model_validator

from app.config import EvaluationSettings, Settings
from app.core import RANDOM, ModelHash


class Opponent(Settings):
    """One opponent of a gauntlet, and how many games are played against it."""

    name: str = Field(min_length=1, description="its role: 'random', 'champion', 'recent'")
    kind: Literal["random", "heuristic", "model"]
    model: ModelHash | None = None
    games: int = Field(ge=1)

    @model_validator(mode="after")
    def _model_when_it_is_one(self) -> Self:
        if (self.model is None) != (self.kind != "model"):
            raise ValueError("an opponent names a model exactly when it is one")
        return self

    @property
    def player(self) -> str:
        """What it is loaded by: its model's hash, or the name of a built-in player."""
        return self.model or self.kind


def plan_gauntlet(
    model: ModelHash,
    champion: ModelHash | None,
    recent: ModelHash | None,
    settings: EvaluationSettings,
    players: int,
) -> tuple[Opponent, ...]:
    """Return the opponents of ``model``, the random bot first.

    A model never plays itself (a champion cannot lose rating by beating itself, ERRATA 000) and no model twice.
    The numbers of games are rounded up so that every seat is taken equally often.
    """
    opponents = [Opponent(name=RANDOM, kind="random", games=_rotated(settings.random_games, players))]
    seen = {model}
    for name, candidate in (("champion", champion), ("recent", recent)):
        if candidate is not None and candidate not in seen:
            seen.add(candidate)
            games = _rotated(settings.model_games, players)
            opponents.append(Opponent(name=name, kind="model", model=candidate, games=games))
    return tuple(opponents)


def _rotated(games: int, players: int) -> int:
    return -(-games // players) * players
