"""Shards: of games that are played, and with given columns."""

from typing import Any

import numpy as np

from flyball.app.config import GameConfig
from flyball.app.games import open_table
from flyball.app.play.players import Player, RandomPlayer
from flyball.app.play.recording import ShardRecorder
from flyball.app.play.rollout import Rollout, Schedule
from flyball.app.store import Shard, ShardMeta

COLUMNS = ("game", "seat", "step", "reward", "value", "done", "truncated", "bootstrap")
"""Columns that matter for advantages."""

META = ShardMeta(
    config_key="hearts_4p", rules_version="r", model="a" * 64, opponents=(), seed=0, worker="w", temperature=1.0
)


def rows_of(**columns: Any) -> Shard:
    """Return a shard with these columns. Its other columns are those of one game without rewards."""
    rows = len(next(iter(columns.values())))
    floats = dict.fromkeys(("log_prob", "value", "reward", "bootstrap"), np.zeros(rows, dtype=np.float32))
    usual = {
        "obs": np.zeros((rows, 1), dtype=np.uint8),
        "mask": np.ones((rows, 1), dtype=np.bool_),
        "action": np.zeros(rows, dtype=np.int32),
        "done": np.arange(rows) == rows - 1,
        "truncated": np.zeros(rows, dtype=np.bool_),
        "seat": np.zeros(rows, dtype=np.int8),
        "game": np.zeros(rows, dtype=np.int32),
        "step": np.arange(rows, dtype=np.int32),
        "history": np.zeros(0, dtype=np.int32),
    }
    given = floats | usual | columns
    games = int(max(given["game"], default=-1)) + 1
    ends = {"returns": np.zeros((games, 4), dtype=np.float32), "history_offsets": np.zeros(games + 1, dtype=np.int64)}
    return Shard(**{"meta": META} | ends | given)


def played(config: GameConfig, games: int, player: Player | None = None, *, seed: int = 3, slots: int = 8) -> Shard:
    """Return the rows of games of one player, by default the random bot, against itself."""
    schedule = Schedule(list(range(games)), np.zeros((games, config.players), dtype=np.int8), (1.0,), seed)
    recorder = ShardRecorder()
    outcomes = Rollout(open_table(config, slots), [player or RandomPlayer()], schedule, recorder).run()
    return recorder.shard(outcomes, META)
