"""A duplicated shard is found before anything is trained on it: the same blob again, or the same games in another."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from app.core import FlyballError, ShardKey
from app.evaluation import CERTAIN, repeated_games, repetition_evidence
from app.store import BlobStore, DamagedBlob, MissingBlob, Shard, get_shard

COMPARED = 16
"""How many earlier shards a shard's games are compared with, the latest; ``app.runtime.work.quality`` keeps as many."""


class RepeatedShard(FlyballError):
    """Experience that was delivered before."""


def check_key(shard: ShardKey, earlier: Sequence[ShardKey]) -> None:
    """Raise ``RepeatedShard`` when this very shard was delivered before."""
    if shard in earlier:
        raise RepeatedShard(
            f"Shard {shard} was delivered before, for another request.",
            hint="Find out why a worker answered two requests with one shard, or who published it again.",
        )


def check_games(store: BlobStore, shard: Shard, earlier: Sequence[ShardKey]) -> None:
    """Raise ``RepeatedShard`` when a shard's games are those of earlier shards; see ``app.evaluation.repetition``.

    Earlier shards that are not stored any more, or are damaged, are left out.
    """
    before = list(_stored(store, earlier[-COMPARED:]))
    games = _games(shard)
    evidence = repetition_evidence(games, _log_probs(shard), before)
    if evidence >= CERTAIN:
        raise RepeatedShard(
            f"{repeated_games(games, before)} of {len(games)} games are those of earlier shards, too many to be chance "
            f"(evidence {evidence:.0f} nats, {CERTAIN:.0f} is certain).",
            hint="Find out why a worker plays the same games again: do its requests have the same seed?",
        )


def history(shard: Shard, game: int) -> NDArray[np.int32]:
    """Return all actions of one game of a shard."""
    return shard.history[shard.history_offsets[game] : shard.history_offsets[game + 1]]


def _games(shard: Shard) -> list[bytes]:
    return [history(shard, game).tobytes() for game in range(shard.games)]


def _log_probs(shard: Shard) -> NDArray[np.float64]:
    """Return the log-probability [G] of the recorded decisions of each game, nats."""
    return np.bincount(shard.game, weights=shard.log_prob, minlength=shard.games).astype(np.float64)


def _stored(store: BlobStore, keys: Sequence[ShardKey]) -> Iterator[list[bytes]]:
    for key in keys:
        try:
            yield _games(get_shard(store, key))
        except (MissingBlob, DamagedBlob):
            continue
