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
    """Return the shard of some hands of a first model.

    The model has hardly any preferences, so it tries everything.
    """
    policy = Policy(CONFIG.network, SHAPE, init_policy(CONFIG.network, SHAPE, seed=1))
    schedule = Schedule(list(range(hands)), np.zeros((hands, 4), dtype=np.int8), (1.0,), seed)
    recorder = ShardRecorder()
    outcomes = Rollout(open_table(CONFIG, slots), [policy], schedule, recorder).run()
    meta = ShardMeta(
        config_key=CONFIG.key, rules_version="r", model="a" * 64, opponents=(), seed=seed, worker="w", temperature=1.0
    )
    return recorder.shard(outcomes, meta)


def test_legal_masking() -> None:
    """Illegal cards are never chosen and have no probability.

    A forced card is no decision.
    """
    shard = collect(300)
    assert np.take_along_axis(shard.mask, shard.action[:, None].astype(np.int64), axis=1).all()
    assert (shard.obs[:, :52] >= shard.mask).all()
    assert shard.mask.sum(axis=1).min() >= 2
    assert shard.log_prob.max() < 0


def test_records_of_a_hand() -> None:
    """A hand has 52 plays, and 12 passes or none.

    Decisions without a choice have no rows. All seats have rows, in turn order.
    """
    shard = collect(400)
    rows = np.bincount(shard.game)
    assert 40 < rows.mean() < 55
    lengths = np.diff(shard.history_offsets) - 53
    assert set(lengths.tolist()) == {52, 64}
    assert (rows <= lengths).all()
    for game in range(20):
        mine = shard.game == game
        assert set(shard.seat[mine].tolist()) == {0, 1, 2, 3}
        assert sorted(shard.step[mine].tolist()) == list(range(rows[game]))


def test_determinism() -> None:
    """Equal seeds give equal bytes, however many games are in flight."""
    keys = [put_shard(MemoryStore(), collect(60, slots=slots)) for slots in (60, 60, 17)]
    assert keys[0] == keys[1]
    first, other = collect(60, slots=60), collect(60, slots=17)
    np.testing.assert_array_equal(first.history, other.history)
    np.testing.assert_array_equal(first.action, other.action)
    assert put_shard(MemoryStore(), collect(60, seed=1, slots=60)) != keys[0]
