"""Forecast of the size that a run's store will have."""

from flyball.app.backends import OURS
from flyball.app.config import EXTERNAL_BACKEND, LANGUAGE_BACKEND, GameConfig, RunSettings
from flyball.app.store import MemoryStore, put_shard
from flyball.daemons.quality_monitor import STAYING, WINDOWS

GAMES = 8
"""Random games from which the size of a row is measured."""

COPIES = 3
"""Size of a model with its optimiser's state, in sizes of its parameters."""


def forecast(settings: RunSettings) -> dict[str, int]:
    """Return the bytes that the store will hold, by configuration.

    Counted are the rows that trainings may still need, the shards that inspections compare with, and a full league.
    Configurations whose models are language models, a participant's or of the user's own backend are left out.
    """
    backends = OURS.keys() - {LANGUAGE_BACKEND, EXTERNAL_BACKEND}
    return {config.key: _expected(config, settings) for config in settings.configs if config.backend in backends}


def _expected(config: GameConfig, settings: RunSettings) -> int:
    from flyball.app.games import open_table  # imported late, because they load OpenSpiel and PyTorch
    from flyball.app.learning.network import parameters_size, visible_shape
    from flyball.app.play.players import RandomPlayer
    from flyball.app.play.selfplay import play_recorded, selfplay_schedule

    schedule = selfplay_schedule(GAMES, config.players, [], (1.0,), 0, opening_plies=0)
    shard = play_recorded(config, [RandomPlayer()], schedule, model="0" * 64, seed=0, worker="", in_flight=GAMES)[0]
    store = MemoryStore()
    bytes_per_row = len(store.get(put_shard(store, shard))) / max(1, shard.rows)
    feedback = settings.feedback
    shares = [getattr(feedback.trigger, name) for name in ("hot_path", "accelerated", "normal", "reduced")]
    window = config.rows_per_training * max(shares) * feedback.gauntlet.max_games_factor
    compared = STAYING * config.selfplay.games_per_request * shard.rows / GAMES
    rows = (WINDOWS + 1) * window + compared + (config.replay_rows or 0)
    network = parameters_size(config.network, visible_shape(config.network, open_table(config, 0).spec.shape))
    models = settings.league.admission.capacity * COPIES * network
    return int(rows * bytes_per_row + models)
