"""Specs of self-play and inspection, on a store in a folder, and a model to play with."""

from pathlib import Path

from app.config import GAMES
from app.games import open_table
from app.policy import init_policy, parameters_to_bytes
from app.store import FileStore, Manifest, get_shard, put_checkpoint

CONFIG = GAMES["connect_four_2p"]


def ignore(progress) -> None:
    """Take no notice of progress."""


def put_model(root: Path, config=CONFIG, seed: int = 0, scale: float = 1.0) -> str:
    game = open_table(config, 0).spec
    parameters = init_policy(config.network, game.observation_size, game.actions, seed)
    manifest = Manifest(
        config_key=config.key,
        network=config.network,
        obs_size=game.observation_size,
        actions=game.actions,
        step=0,
        parent=None,
        optimizer=None,
    )
    scaled = {name: tensor * scale for name, tensor in parameters.items()}
    return put_checkpoint(FileStore(root), manifest, parameters_to_bytes(scaled), None)


def selfplay_spec(root: Path, model: str, config=CONFIG, **changes):
    return {
        "store": str(root),
        "config": config.model_dump(mode="json"),
        "model": model,
        "lineups": [],
        "games": 12,
        "seed": 5,
        "temperature": 1.0,
        "worker": "worker@test",
        **changes,
    }


def inspection_spec(root: Path, shard: str, config=CONFIG, **changes):
    return {
        "store": str(root),
        "config": config.model_dump(mode="json"),
        "shard": shard,
        "model": changes.pop("model", None) or get_shard(FileStore(root), shard).meta.model,
        "seed": 1,
        **changes,
    }
