"""Checks that a model and shards belong to the requested training."""

from collections.abc import Sequence

from app.config import GameConfig
from app.core import FlyballError
from app.games import TableSpec
from app.store import Checkpoint, Shard


class UnfitData(FlyballError):
    """A base model or a shard that does not belong to the training asked for."""


def check_base(base: Checkpoint, config: GameConfig, step: int) -> None:
    """Raise ``UnfitData`` unless ``base`` is the configuration's model of that step and shape."""
    manifest = base.manifest
    found = (manifest.config_key, manifest.step, manifest.network)
    if found != (config.key, step, config.network):
        raise UnfitData(
            f"Model {base.model} is {found}, not {(config.key, step, config.network)}.",
            hint="Ask for the model's own configuration and step; with another network, begin a new run.",
        )


def check_shards(shards: Sequence[Shard], config: GameConfig, game: TableSpec) -> None:
    """Raise ``UnfitData`` unless every shard was played by the configuration's present rules and encoding."""
    expected = (config.key, game.rules_version, game.observation_size, game.actions)
    for shard in shards:
        meta = shard.meta
        found = (meta.config_key, meta.rules_version, shard.obs.shape[1], shard.mask.shape[1])
        if found != expected:
            raise UnfitData(
                f"A shard of {meta.worker} is of {found}, not of {expected}.",
                hint="Leave it out; it was played by other rules or another version of this program.",
            )
