"""bad-data: a node delivers games whose outcomes are not what the rules say."""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from app.core import derive_id
from app.events import (
    ParityChecked,
    QualityDegraded,
    SelfplayComplete,
    TrainingBlockedByQuality,
    TrainingRequested,
    TrainingUnblocked,
)
from app.feedback.plan import IDLE_PACE_US
from app.runtime.scenarios.known import Known
from app.runtime.scenarios.plan import Expected, Plan
from app.store import BlobStore, Shard, get_shard, put_shard

WORKER = "selfplay_worker@liar"


class BadData:
    """The latest shard once more, with false outcomes."""

    name: ClassVar[str] = "bad-data"
    purpose: ClassVar[str] = "a shard whose outcomes the rules contradict"

    def lacks(self, known: Known, store: BlobStore) -> str | None:
        """See ``Scenario.lacks``."""
        if known.blocked:
            return "is kept from training by the quality of its data already"
        return None if _latest(known, store) else "has no games in the store that were not trained on yet"

    def plan(self, known: Known, store: BlobStore) -> Plan:
        """See ``Scenario.plan``."""
        played = _latest(known, store)
        assert played is not None  # it lacks nothing
        key = put_shard(store, falsified(get_shard(store, played.shard.key)))
        told = {
            "request_id": derive_id(self.name, key),
            "worker": WORKER,
            "shard": played.shard.model_copy(update={"key": key}),
        }
        quality = known.settings.feedback.quality
        return Plan(
            key=known.key,
            trouble=played.model_copy(update=told),
            expected=(
                Expected(
                    "detected",
                    ParityChecked,
                    lambda event, _: event.data.shard == key and event.data.failures > 0,
                    "The quality monitor inspects every shard: does it run, and how far is it behind? (flyball status)",
                ),
                Expected("detected", QualityDegraded, lambda event, _: event.data.shard == key, "Does quality_monitor run?"),
                Expected(
                    "decided",
                    TrainingBlockedByQuality,
                    lambda *_: True,
                    "The feedback daemon decides it: does it run, and how far is it behind? (flyball status)",
                ),
                Expected(
                    "recovered",
                    TrainingUnblocked,
                    lambda *_: True,
                    f"It takes {quality.parity_clear_checks} clean shards in a row, and a blocked configuration plays "
                    "one a minute (feedback.quality.parity_clear_checks).",
                ),
                Expected(
                    "recovered",
                    TrainingRequested,
                    lambda event, _: key not in {shard.key for shard in event.data.shards},
                    "The configuration has not enough rows for a training yet (games.KEY.rows_per_training).",
                ),
            ),
            least_seconds=(quality.parity_clear_checks - 1) * IDLE_PACE_US / 1e6,
            shorten="set feedback.quality.parity_clear_checks = 1",
        )


def falsified(shard: Shard) -> Shard:
    """Return a shard in which every seat of every finished game has won, and was rewarded for it.

    It is consistent in itself: only who plays the games again finds out.
    """
    finished = np.zeros(shard.games, dtype=np.bool_)
    finished[shard.game[shard.done]] = True
    won = np.float32(1)
    return replace(
        shard,
        returns=np.where(finished[:, None], won, shard.returns),
        reward=np.where(shard.done, won, shard.reward),
    )


def _latest(known: Known, store: BlobStore) -> SelfplayComplete | None:
    """Return the latest games that are still in the store."""
    return next((played for played in reversed(known.played) if store.has(played.shard.key)), None)
