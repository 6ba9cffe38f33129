"""Shards of experience: the decisions of some self-play games.

Training and the parity check read shards.

A shard is one safetensors file whose header holds its metadata as a note: a single entry with one spelling. So equal
shards have equal bytes and one key, although the safetensors library writes metadata entries in no fixed order.
Masks are stored as bits, and lists of legal actions as the gaps between them; ``packing`` stores observations.
Source: the format, https://huggingface.co/docs/safetensors (8 bytes of header length, JSON header, tensors).
"""

import json
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Literal

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from safetensors import SafetensorError

from flyball.app.config import FrozenModel
from flyball.app.core import ConfigKey, FlyballError, Name, ShardKey, derive_seed, parse_json
from flyball.app.core.legal import Legal, LegalActions, are_legal, compact, legal_counts
from flyball.app.store.blobs import BlobStore, DamagedBlob
from flyball.app.store.packing import (
    MOST_EXPANSION,
    BadPacking,
    Declared,
    deflate,
    inflate,
    pack_observations,
    unpack_observations,
)

MOST_ACTIONS = 1 << 31
"""Actions of a game, at most: their numbers are int32."""

_LENGTH_BYTES = 8
_METADATA = "__metadata__"


def with_note(data: bytes, note: str) -> bytes:
    """Return the safetensors file ``data`` with ``note`` in its header."""
    header, tensors = _split(data)
    header[_METADATA] = {"note": note}
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)  # the format aligns the tensors to 8 bytes
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text + tensors


def note_of(data: bytes) -> str:
    """Return the note of a file. Raises ``DamagedBlob`` unless :func:`with_note` made it."""
    try:
        header, _ = _split(data)
        note = header[_METADATA]["note"]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedBlob(
            "The blob is no safetensors file with a note.",
            hint="Is its key that of a shard or a checkpoint of this project?",
        ) from error
    return str(note)


def _split(data: bytes) -> tuple[dict[str, dict[str, object]], bytes]:
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    header = parse_json(data[_LENGTH_BYTES:start])
    return header, data[start:]


ROW_TYPES: dict[str, type[np.generic]] = {
    "action": np.int32,
    "log_prob": np.float32,
    "value": np.float32,
    "reward": np.float32,
    "done": np.bool_,
    "truncated": np.bool_,
    "bootstrap": np.float32,
    "seat": np.int8,
    "game": np.int32,
    "step": np.int32,
}
"""Type of each array that has one value per row."""

GAME_TYPES: dict[str, type[np.generic]] = {
    "returns": np.float32,
    "history": np.int32,
    "history_offsets": np.int64,
}


class BadShard(FlyballError):
    """Arrays that do not form a shard."""


def game_seed(seed: int, game: int) -> int:
    """Return the seed from which game number ``game`` of a shard with ``seed`` draws chance."""
    return derive_seed(seed, "game", game)


class ShardMeta(FrozenModel):
    """Origin of a shard.

    ``model`` and ``opponents`` are the players: models by hash, bots by name. Their type is ``Name``, because a
    ``PlayerName`` cannot name some bots, such as the levels of Hearts.
    """

    config_key: ConfigKey
    rules_version: str
    model: Name
    opponents: tuple[Name, ...]
    seed: int
    worker: str
    temperature: float = Field(gt=0)


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """R rows of G games with P seats; D features, A actions.

    A row is one decision.

    Attributes:
        obs: [R, D] observations, uint8 or float32.
        mask: [R, A] legal actions: bool, or lists in games with many actions (``flyball.app.core.legal``).
        action: [R] the chosen action.
        log_prob: [R] the action's log-probability under the policy that played, temperature included; after a search,
            given the noise of the other actions.
        value: [R] the critic's value before the action.
        reward: [R] the seat's reward until its next decision or the end.
        done: [R] the game ended before the seat's next decision.
        truncated: [R] the game was cut off before the seat's next decision.
        bootstrap: [R] the critic's value of the state after a truncated row, else 0.
        seat: [R] the deciding seat.
        game: [R] the game, 0 … G - 1.
        step: [R] number of the decision within its game; grows within an episode.
        returns: [G, P] outcomes of the games.
        history: [H] all actions of all games, chance outcomes included.
        history_offsets: [G + 1] where each game's part of the history begins.
        meta: origin of the shard.
        policy: [L] probabilities of the L legal actions of all rows under the policy that a search found, row after row
            and ascending within each; all 0 where a row teaches no policy. None if nothing was searched.

    Raises ``BadShard`` when shapes, types or values do not agree.
    """

    obs: NDArray[np.uint8] | NDArray[np.float32]
    mask: Legal
    action: NDArray[np.int32]
    log_prob: NDArray[np.float32]
    value: NDArray[np.float32]
    reward: NDArray[np.float32]
    done: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    bootstrap: NDArray[np.float32]
    seat: NDArray[np.int8]
    game: NDArray[np.int32]
    step: NDArray[np.int32]
    returns: NDArray[np.float32]
    history: NDArray[np.int32]
    history_offsets: NDArray[np.int64]
    meta: ShardMeta
    policy: NDArray[np.float16] | None = None

    def __post_init__(self) -> None:
        _check_shapes(self)
        _check_values(self)

    @property
    def rows(self) -> int:
        """R, the number of decisions."""
        return len(self.action)

    @property
    def games(self) -> int:
        """G, the number of games."""
        return len(self.returns)

    @property
    def size(self) -> int:
        """Bytes in memory of its largest arrays."""
        legal = self.mask.listed if isinstance(self.mask, LegalActions) else self.mask
        return sum(array.nbytes for array in (self.obs, legal, self.policy, self.history) if array is not None)


def _check_shapes(shard: Shard) -> None:
    rows = shard.rows
    _require(shard.obs.dtype in (np.uint8, np.float32), f"obs is {shard.obs.dtype}, not uint8 or float32")
    _require(shard.obs.ndim == 2 and len(shard.obs) == rows, f"obs is {shard.obs.shape} for {rows} rows")
    mask = shard.mask
    if isinstance(mask, LegalActions):
        _require(len(mask.listed) == mask.counts.sum(), "a legal action is beyond the last row")
    else:
        _require(mask.dtype == np.bool_, f"mask is {mask.dtype}, not bool")
    _require(len(mask.shape) == 2 and len(mask) == rows, f"mask is {mask.shape} for {rows} rows")
    for name, kind in ROW_TYPES.items():
        array = getattr(shard, name)
        _require(array.shape == (rows,), f"{name} is {array.shape} for {rows} rows")
        _require(array.dtype == kind, f"{name} is {array.dtype}, not {np.dtype(kind)}")
    for name, kind in GAME_TYPES.items():
        _require(getattr(shard, name).dtype == kind, f"{name} is not {np.dtype(kind)}")
    _require(shard.returns.ndim == 2, f"returns is {shard.returns.shape}, not [games, seats]")
    offsets = shard.history_offsets
    _require(offsets.shape == (shard.games + 1,), f"history_offsets is {offsets.shape}, {shard.games} games")


def _check_values(shard: Shard) -> None:
    seats, offsets = shard.returns.shape[1], shard.history_offsets
    grows = bool((np.diff(offsets) >= 0).all())
    _require(grows and offsets[0] == 0 and offsets[-1] == len(shard.history), "history_offsets miss the history")
    for name, count in (("game", shard.games), ("seat", seats), ("action", shard.mask.shape[1])):
        array = getattr(shard, name)
        _require(bool(((array >= 0) & (array < count)).all()), f"a {name} is outside 0 … {count - 1}")
    _require(bool(are_legal(shard.mask, shard.action).all()), "an action is not legal under its mask")
    if shard.policy is not None:
        policy = shard.policy
        _require(policy.shape == (int(legal_counts(shard.mask).sum()),), f"policy is {policy.shape}")
        _require(policy.dtype == np.float16 and bool(((policy >= 0) & (policy <= 1)).all()), "policy is no policy")
    for name in ("log_prob", "value", "reward", "bootstrap", "returns"):
        _require(bool(np.isfinite(getattr(shard, name)).all()), f"{name} holds a NaN or an infinity")


def _require(condition: bool, complaint: str) -> None:  # noqa: FBT001
    if not condition:
        raise BadShard(f"No shard: {complaint}.", hint="Fix the code that collected these rows.")


_PLAIN: Final = 2  # last version of the format whose observations are an array as in memory
_PACKED: Final = 3  # version of the format: observations of smaller types, and compressed arrays


class _Note(ShardMeta):
    """Metadata of a shard, and what its arrays do not show. Neither packed bits nor gaps show the mask's width A."""

    actions: int = Field(ge=1, le=MOST_ACTIONS)
    version: Literal[1, 2, 3] = 1
    obs_type: str = Field(default="float32", pattern="^(uint8|float32)$")
    deflated: dict[str, Declared] = Field(default={}, description="types and shapes of compressed arrays")


_LEAP = 255  # stands for a gap that is in the list of leaps, because it does not fit into a byte


def _gaps(legal: LegalActions) -> dict[str, NDArray[Any]]:
    """Return the gaps between legal actions in the flattened mask.

    The mask has the shape [R x A]. Gaps of ``_LEAP`` or more are in a separate list.
    """
    gaps = np.diff(legal.places, prepend=-1)
    far = gaps >= _LEAP
    leaps = gaps[far].astype(np.min_scalar_type(2 * legal.actions))  # every row has a legal action
    return {"legal_gaps": np.where(far, _LEAP, gaps).astype(np.uint8), "legal_leaps": leaps}


def _legal(arrays: dict[str, NDArray[Any]], note: _Note) -> Legal:
    """Remove the legal actions from a shard's arrays and return them."""
    if "mask_bits" in arrays:
        bits, width = arrays.pop("mask_bits"), -(-note.actions // 8)
        _require(bits.ndim == 2 and bits.shape[1] == width, f"mask_bits is {bits.shape} for {note.actions} actions")
        return compact(np.unpackbits(bits, axis=1, count=note.actions).astype(np.bool_))
    packed, leaps = arrays.pop("legal_gaps"), arrays.pop("legal_leaps")
    gaps, far = packed.astype(np.int64), packed == _LEAP
    _require(np.count_nonzero(far) == len(leaps), f"there are {len(leaps)} leaps, not {np.count_nonzero(far)}")
    gaps[far] = leaps
    return LegalActions.at(np.cumsum(gaps) - 1, len(arrays["action"]), note.actions)


def put_shard(store: BlobStore, shard: Shard) -> ShardKey:
    """Store a shard and return its key. The same shard always has the same key."""
    arrays: dict[str, NDArray[Any]] = {name: getattr(shard, name) for name in (*ROW_TYPES, *GAME_TYPES)}
    mask = compact(shard.mask)
    if shard.policy is not None:
        arrays["policy"] = shard.policy
    arrays |= _gaps(mask) if isinstance(mask, LegalActions) else {"mask_bits": np.packbits(mask, axis=1)}
    arrays |= pack_observations(shard.obs)
    note = _Note(**shard.meta.model_dump(), actions=mask.shape[1], version=_PACKED, obs_type=shard.obs.dtype.name)
    stored, declared = deflate(arrays)
    data = _file(stored, note.replace(deflated=declared))
    if shard.obs.nbytes + sum(array.nbytes for array in arrays.values()) > MOST_EXPANSION * len(data):
        data = _file(arrays, note)  # bits alone never expand so much
    return ShardKey(store.put(data))


def _file(arrays: dict[str, NDArray[Any]], note: _Note) -> bytes:
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return with_note(safetensors.numpy.save(whole), note.model_dump_json(exclude_defaults=True))


def get_shard(store: BlobStore, key: ShardKey) -> Shard:
    """Return a shard. Raises ``MissingBlob``, or ``DamagedBlob`` if the blob has changed or is no shard."""
    data = store.get(key)
    try:
        note = _Note.model_validate_json(note_of(data))
        arrays = safetensors.numpy.load(data)
        if note.version > _PLAIN:
            inflate(arrays, note.deflated, MOST_EXPANSION * len(data))
            arrays["obs"] = unpack_observations(arrays, note.obs_type, MOST_EXPANSION * len(data))
        mask = _legal(arrays, note)
        return Shard(**arrays, mask=mask, meta=ShardMeta(**note.model_dump(include=set(ShardMeta.model_fields))))
    except (SafetensorError, ValidationError, KeyError, TypeError, BadPacking, BadShard) as error:
        raise DamagedBlob(
            f"Blob {key} is intact but is no shard ({error}).",
            hint="Is it a checkpoint, or a shard of another version? Leave it out and play fresh games.",
        ) from error


class ShardCache:
    """Thread-safe cache of shards by the hash of their content; the least recently used are dropped."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity, self._size = capacity_bytes, 0
        self._shards: OrderedDict[tuple[BlobStore, str], Shard] = OrderedDict()
        self._lock = Lock()

    def get(self, store: BlobStore, key: str) -> Shard:
        """Return a shard, read on first use; see ``get_shard``."""
        with self._lock:
            if (store, key) in self._shards:
                self._shards.move_to_end((store, key))
                return self._shards[store, key]
        shard = get_shard(store, ShardKey(key))
        with self._lock:
            if (store, key) not in self._shards:
                self._shards[store, key] = shard
                self._size += shard.size
            while self._size > self._capacity:
                self._size -= self._shards.popitem(last=False)[1].size
        return shard


SHARDS = ShardCache(capacity_bytes=2 << 30)
"""Shards that the next training probably learns from again."""
