"""Settings of ``flyball train`` for text games."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from app.config import GameConfig, Settings, nest
from app.config.devices import Device, Precision
from app.core import FlyballError


class UnusableTraining(FlyballError):
    """Settings unfit for training a text game."""


class LoopSettings(Settings):
    """Settings of ``flyball train`` for text games, in addition to the configuration."""

    iterations: int = Field(30, ge=1, description="iterations of playing and learning")
    evaluate_every: int = Field(5, ge=1, description="iterations between evaluations")
    evaluation_games: int = Field(100, ge=2, description="games of an evaluation against each bot")
    final_games: int = Field(400, ge=2, description="games of the last evaluation against each bot")
    self_play: float = Field(0.5, ge=0, le=1, description="share of the games against itself; bots play the others")
    device: Device = "cpu"
    precision: Precision = "auto"
    threads: int = Field(1, ge=1, description="threads of the arithmetic; a large base model gains from several")


def text_settings(config: GameConfig, values: Mapping[str, Any]) -> tuple[GameConfig, LoopSettings]:
    """Return configuration and loop settings, changed by ``values``.

    The keys of ``values`` are fields of ``LoopSettings``, or dotted keys of the configuration. Raises
    ``UnusableTraining``.
    """
    loop = {key: value for key, value in values.items() if key in LoopSettings.model_fields}
    rest = nest({key: value for key, value in values.items() if key not in loop})
    changes = {
        key: getattr(config, key).model_dump() | value
        if isinstance(value, Mapping) and isinstance(getattr(config, key, None), Settings)
        else value
        for key, value in rest.items()
    }
    try:
        return GameConfig.model_validate(config.model_dump() | changes), LoopSettings.model_validate(loop)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UnusableTraining(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}.",
            hint=f"Settings of text games: {', '.join(LoopSettings.model_fields)}; the configuration's, such as "
            "learning_rate, epochs, selfplay.games_per_request; and language.*.",
        ) from error
