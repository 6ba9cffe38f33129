"""Shards in which only the columns for advantages matter."""

from typing import Any

import numpy as np

from app.store import Shard, ShardMeta

COLUMNS = ("game", "seat", "step", "reward", "value", "done", "truncated", "bootstrap")
META = ShardMeta(
    config_key="hearts_4p", rules_version="r", model="a" * 64, opponents=(), seed=0, worker="w", temperature=1.0
)


def rows_of(**columns: Any) -> Shard:
    """Return a shard with these ``COLUMNS``."""
    rows, games = len(columns["game"]), int(max(columns["game"], default=-1)) + 1
    return Shard(
        **columns,
        obs=np.zeros((rows, 1), dtype=np.uint8),
        mask=np.ones((rows, 1), dtype=np.bool_),
        action=np.zeros(rows, dtype=np.int32),
        log_prob=np.zeros(rows, dtype=np.float32),
        returns=np.zeros((games, 4), dtype=np.float32),
        history=np.zeros(0, dtype=np.int32),
        history_offsets=np.zeros(games + 1, dtype=np.int64),
        meta=META,
    )
