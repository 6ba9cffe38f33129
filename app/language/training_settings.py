"""Settings of ``flyball train`` for text games."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from flyball.app.config import Document, FrozenModel, GameConfig, flatten, nest
from flyball.app.config.devices import Device, Precision
from flyball.app.config.layers import COMMAND_LINE, change


class LoopSettings(FrozenModel):
    """Settings of ``flyball train`` for text games, in addition to the configuration."""

    iterations: int = Field(30, ge=1, description="iterations of playing and learning")
    evaluate_every: int = Field(5, ge=1, description="iterations between evaluations")
    evaluation_games: int = Field(100, ge=2, description="games of an evaluation against each bot")
    final_games: int = Field(400, ge=2, description="games of the last evaluation against each bot")
    self_play: float = Field(0.5, ge=0, le=1, description="share of the games against itself; bots play the others")
    device: Device = "cpu"
    precision: Precision = "auto"
    threads: int = Field(1, ge=1, description="threads of the arithmetic; a large base model gains from several")


DOCUMENT = Document([LoopSettings, GameConfig], see="See: flyball train GAME --settings", left_out=("key", "imports"))


def text_settings(config: GameConfig, values: Mapping[str, Any]) -> tuple[GameConfig, LoopSettings]:
    """Return configuration and loop settings, changed by ``values``.

    The keys of ``values`` are fields of ``LoopSettings``, or dotted keys of the configuration. Raises ``BadSettings``.
    """
    changes = {key: value for key, (value, _) in DOCUMENT.layer(values, COMMAND_LINE).items()}
    loop = {key: changes.pop(key) for key in LoopSettings.model_fields if key in changes}
    tree = nest(change(flatten(config.model_dump()), changes))
    return (
        DOCUMENT.validated(GameConfig, tree, {}, other=COMMAND_LINE),
        DOCUMENT.validated(LoopSettings, loop, {}, other=COMMAND_LINE),
    )
