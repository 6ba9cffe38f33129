"""Specs of jobs of backend ``external``, for tests of participants."""

from flyball.app.config import GameConfig
from flyball.app.participation import jobs

JOBS = jobs.__name__
THEIRS = GameConfig(key="mine_2p", backend="external", game="mine, rules 1", players=2, options={"size": 3})
MODEL, BASE, SHARD = "a" * 64, "b" * 64, "c" * 64
CONTEXT = {"store": "/nowhere", "config": THEIRS.model_dump(mode="json"), "seed": 5}
TRAIN = CONTEXT | {
    "base_model": BASE,
    "shards": [SHARD],
    "replayed": [],
    "rows": 70,
    "step": 3,
    "learning_rate": 0.1,
    "epochs": 2,
}
PLAY = CONTEXT | {"model": MODEL, "lineups": [], "games": 8, "temperature": 1.0, "worker": "selfplay_worker@laptop.1"}
INSPECT = CONTEXT | {"shard": SHARD, "model": MODEL}
