"""A configuration's first model."""

from app.config import GameConfig
from app.games import TableSpec
from app.policy import init_policy, parameters_to_bytes
from app.store import Manifest


def first_model(config: GameConfig, game: TableSpec, seed: int) -> tuple[Manifest, bytes]:
    """Draw parameters from a seed; return the manifest, at step 0, and the parameters' safetensors file."""
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
    return manifest, parameters_to_bytes(parameters)
