"""Games of connect four by a small search, with their model."""

from flyball.app.config import GAMES, NetworkSettings, SearchSettings
from flyball.app.games import open_table
from flyball.app.learning.inference import Policy
from flyball.app.learning.jobs import first_model
from flyball.app.learning.network import bytes_to_parameters
from flyball.app.play.selfplay import play_recorded, searching_player, selfplay_schedule
from flyball.app.store import BlobStore, Checkpoint, MemoryStore, Shard, get_checkpoint, put_checkpoint

CONFIG = GAMES["connect_four_2p"].replace(
    backend="search",
    network=NetworkSettings(hidden=(32,)),
    search=SearchSettings(simulations=8, batch_size=64, value_scale=0.5),
)
GAME = open_table(CONFIG, 0).spec


def first(store: BlobStore | None = None) -> Checkpoint:
    """Return the model that plays, stored."""
    store = store or MemoryStore()
    manifest, parameters = first_model(CONFIG, GAME, 1)
    return get_checkpoint(store, put_checkpoint(store, manifest, parameters, None))


def played(seed: int, games: int = 30, config=CONFIG) -> Shard:
    """Return the rows of the model's games."""
    base = first()
    policy = Policy(CONFIG.network, base.manifest.shape, bytes_to_parameters(base.parameters))
    schedule = selfplay_schedule(games, 2, [], (1.0,), seed, opening_plies=2)
    hero = searching_player(policy, config, 1.0)
    return play_recorded(config, [hero], schedule, model=base.model, seed=seed, worker="w", in_flight=16)[0]
