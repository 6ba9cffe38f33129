"""Specs of self-play and inspection, with a store and a model. The store is in a folder."""

from pathlib import Path

from flyball.app.config import DEFAULT_BACKEND, GAMES, NetworkSettings
from flyball.app.games import open_table
from flyball.app.learning.jobs import first_model
from flyball.app.learning.network import bytes_to_parameters, parameters_to_bytes
from flyball.app.store import FileStore, get_shard, put_checkpoint

FULL_GAMES = GAMES["connect_four_2p"].selfplay.replace(opening_plies=0)
CONFIG = GAMES["connect_four_2p"].replace(backend=DEFAULT_BACKEND, network=NetworkSettings(), selfplay=FULL_GAMES)
"""Connect four as PPO learns it, with a small network."""


def ignore(progress) -> None:
    """Ignore progress."""


def put_model(root: Path, config=CONFIG, seed: int = 0, scale: float = 1.0) -> str:
    manifest, drawn = first_model(config, open_table(config, 0).spec, seed)
    given = bytes_to_parameters(drawn).items()
    scaled = {name: tensor * scale if tensor.is_floating_point() else tensor for name, tensor in given}
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
