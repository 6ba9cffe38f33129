"""Shards in a blob store: one blob each, named by its SHA-256."""

from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors import SafetensorError

from app.core import ShardKey
from app.store.blobs import BlobStore, DamagedBlob
from app.store.header import note_of, with_note
from app.store.shard import GAME_TYPES, ROW_TYPES, BadShard, Shard, ShardMeta

_ARRAYS = ("obs", *ROW_TYPES, *GAME_TYPES)


class _Note(ShardMeta):
    """The meta data, and what a bit-packed mask does not say by itself."""

    actions: int


def put_shard(store: BlobStore, shard: Shard) -> ShardKey:
    """Store a shard and return its key. The same shard always has the same key."""
    arrays: dict[str, NDArray[Any]] = {name: np.ascontiguousarray(getattr(shard, name)) for name in _ARRAYS}
    arrays["mask_bits"] = np.packbits(shard.mask, axis=1)
    note = _Note(**shard.meta.model_dump(), actions=shard.mask.shape[1])
    return ShardKey(store.put(with_note(safetensors.numpy.save(arrays), note.model_dump_json())))


def get_shard(store: BlobStore, key: ShardKey) -> Shard:
    """Return a shard. Raises ``MissingBlob``, or ``DamagedBlob`` when any bit of it has changed."""
    data = store.get(key)
    try:
        note = _Note.model_validate_json(note_of(data))
        arrays = safetensors.numpy.load(data)
        mask = np.unpackbits(arrays.pop("mask_bits"), axis=1, count=note.actions).astype(np.bool_)
        return Shard(**arrays, mask=mask, meta=ShardMeta(**note.model_dump(exclude={"actions"})))
    except (SafetensorError, ValidationError, KeyError, TypeError, BadShard) as error:
        raise DamagedBlob(
            f"Blob {key} is intact but is no shard ({error}).",
            hint="Is it a checkpoint, or a shard of an older version? Leave it out and play fresh games.",
        ) from error


def delete_shard(store: BlobStore, key: ShardKey) -> None:
    """Delete a shard, if it is there."""
    store.delete(key)
