"""Experience of Hearts from a model's self-play."""

import numpy as np

from app.config import GAMES
from app.core import NetworkShape
from app.games import open_table
from app.learning.inference import Policy
from app.learning.network import init_policy
from app.play.recording import ShardRecorder
from app.play.rollout import Rollout, Schedule
from app.store import MemoryStore, ShardMeta, put_shard

CONFIG = GAMES["hearts_4p"]
SHAPE = NetworkShape(270, 52)


def collect(hands: int, seed: int = 0, slots: int = 256):
    """Return the shard of some hands of a first model. The model has hardly any preferences, so it tries everything."""
    policy = Policy(CONFIG.network, SHAPE, init_policy(CONFIG.network, SHAPE, seed=1))
    schedule = Schedule(list(range(hands)), np.zeros((hands, 4), dtype=np.int8), (1.0,), seed)
    recorder = ShardRecorder()
    outcomes = Rollout(open_table(CONFIG, slots), [policy], schedule, recorder).run()
    meta = ShardMeta(
        config_key=CONFIG.key, rules_version="r", model="a" * 64, opponents=(), seed=seed, worker="w", temperature=1.0
    )
    return recorder.shard(outcomes, meta)


def test_determinism() -> None:
    """Equal seeds give equal bytes, however many games are in flight."""
    first, again, other = (collect(60, slots=slots) for slots in (60, 60, 17))
    keys = [put_shard(MemoryStore(), shard) for shard in (first, again, collect(60, seed=1, slots=60))]
    assert keys[0] == keys[1] != keys[2]
    np.testing.assert_array_equal(first.history, other.history)
    np.testing.assert_array_equal(first.action, other.action)
