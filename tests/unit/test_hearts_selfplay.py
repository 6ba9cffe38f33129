"""Experience of Hearts from a model's self-play."""

import numpy as np
from shard_rows import played

from flyball.app.config import GAMES
from flyball.app.core import NetworkShape
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import init_policy
from flyball.app.store import MemoryStore, put_shard

CONFIG = GAMES["hearts_4p"]
SHAPE = NetworkShape(270, 52)


def collect(hands: int, seed: int = 0, slots: int = 256):
    """Return the shard of some hands of a first model. The model has hardly any preferences, so it tries everything."""
    policy = Policy(CONFIG.network, SHAPE, init_policy(CONFIG.network, SHAPE, seed=1))
    return played(CONFIG, hands, policy, seed=seed, slots=slots)


def test_determinism() -> None:
    """Equal seeds give equal bytes, however many games are in flight."""
    first, again, other = (collect(60, slots=slots) for slots in (60, 60, 17))
    keys = [put_shard(MemoryStore(), shard) for shard in (first, again, collect(60, seed=1, slots=60))]
    assert keys[0] == keys[1] != keys[2]
    np.testing.assert_array_equal(first.history, other.history)
    np.testing.assert_array_equal(first.action, other.action)
