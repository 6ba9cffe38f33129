"""A new model's opponents: built-in players, anchors, champions, members of the league."""

from collections.abc import Collection, Iterable, Sequence
from typing import Self

from pydantic import Field, model_validator

from app.config import Builtin, EvaluationSettings, GameConfig, Settings
from app.core import HEURISTIC, NEWEST_ANCHOR, RANDOM, ModelHash

CHAMPION = "champion"
MODEL = "model"

MEMBER = "member_"
"""Prefix of the roles of drawn members; a model keeps such a role for one gauntlet only."""


class Opponent(Settings):
    """One opponent of a gauntlet, and how many games are played against it."""

    name: str = Field(min_length=1, description="its role, for instance 'champion'; a built-in player's name")
    kind: str = Field(min_length=1, description="'model', or which built-in player of the game it is")
    model: ModelHash | None = None
    games: int = Field(ge=1)

    @model_validator(mode="after")
    def _model_when_it_is_one(self) -> Self:
        if (self.model is None) != (self.kind != MODEL):
            raise ValueError("an opponent names a model exactly when it is one")
        return self

    @property
    def player(self) -> str:
        """Its model's hash, or the name of a built-in player."""
        return self.model or self.kind


def plan_gauntlet(
    model: ModelHash,
    candidates: Iterable[tuple[str, ModelHash | None]],
    builtins: Sequence[Builtin],
    settings: EvaluationSettings,
    players: int,
    *,
    saturated: Collection[str] = (),
) -> tuple[Opponent, ...]:
    """Return the opponents of ``model``, the random bot first.

    A model never plays itself, because a champion would lose rating by beating itself, and plays no model twice.
    The numbers of games are rounded up so that every seat is taken equally often.

    Args:
        model: the hero.
        candidates: models by their role; a model with several roles keeps the first.
        builtins: players by name.
        settings: how many games.
        players: of a game.
        saturated: built-in players and models with a one-sided score against models like this one. Few games are
            played with them, to notice when the score changes. The champion and the newest lasting
            anchor are played in full, because the gate and the watchdog depend on them.
    """

    def games(role: str, player: str) -> int:
        if role in (CHAMPION, NEWEST_ANCHOR):
            wanted = settings.model_games
        elif player in saturated:
            wanted = settings.saturated_games
        else:
            wanted = settings.random_games if role == RANDOM else settings.anchor_games
        return _rotated(wanted, players)

    ordered = sorted(set(builtins), key=lambda name: (name != RANDOM, name))
    opponents = [Opponent(name=name, kind=name, games=games(name, name)) for name in ordered]
    seen = {model}
    for name, candidate in candidates:
        if candidate is not None and candidate not in seen:
            seen.add(candidate)
            opponents.append(Opponent(name=name, kind=MODEL, model=candidate, games=games(name, candidate)))
    return tuple(opponents)


def plan_matches(players: Iterable[str], games: int, config: GameConfig) -> tuple[Opponent, ...]:
    """Return opponents: league members by content hash, and built-in players.

    Args:
        players: their names.
        games: against each; rounded up so that every seat is taken equally often.
        config: decides how many seats there are.
    """
    rotated = _rotated(games, config.players)
    return tuple(
        Opponent(name=name, kind=name, games=rotated)
        if name in (HEURISTIC, RANDOM)
        else Opponent(name=f"{MEMBER}{number}", kind=MODEL, model=ModelHash(name), games=rotated)
        for number, name in enumerate(players, 1)
    )


def _rotated(games: int, players: int) -> int:
    return -(-games // players) * players
