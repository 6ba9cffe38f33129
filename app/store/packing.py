"""Arrays of a shard in as few bytes as hold them exactly.

Each feature of the observations takes the smallest type that holds its numbers. Then zlib at its fastest compresses
each array where that pays. Another build of zlib may compress equal arrays to other bytes, which read the same.
"""

import zlib
from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flyball.app.core import FlyballError

Arrays = dict[str, NDArray[Any]]
TypeName = Literal["bool", "int8", "uint8", "uint16", "float16", "int32", "uint32", "float32", "int64"]
Declared = tuple[TypeName, tuple[Annotated[int, Field(ge=0)], ...]]
"""Type and shape of a compressed array."""

MOST_EXPANSION: Final = 1000
"""Bytes in memory for a byte of a file, at most: a small file cannot fill memory."""

_BIT, _BYTE, _WHOLE = 0, 1, 2  # how a feature is stored: among obs_bits, obs_bytes or obs_numbers
_PAYS: Final = 0.9  # a compressed array takes at most this share of its size


class BadPacking(FlyballError):
    """Arrays that do not unpack to what they declare."""


def pack_observations(obs: NDArray[Any]) -> Arrays:
    """Return observations [R, D] as arrays of smaller types.

    ``obs_kinds`` [D] says where each feature is: its bit in ``obs_bits``, which has D bits a row; the next column of
    ``obs_bytes``, or of ``obs_numbers``, which have the features' own type.
    """
    bits = np.equal(obs, 1)
    # Compared as bytes, because -0.0 equals 0 and is another number.
    are_bits = _same(bits.astype(obs.dtype), obs)
    kinds = np.where(are_bits, _BIT, _WHOLE).astype(np.uint8)
    others = np.flatnonzero(~are_bits)
    numbers = obs[:, others]
    with np.errstate(invalid="ignore"):
        small = numbers.astype(np.uint8)
    kinds[others[_same(small.astype(obs.dtype), numbers)]] = _BYTE
    bits[:, others] = False
    return {
        "obs_kinds": kinds,
        "obs_bits": np.packbits(bits, axis=1),
        "obs_bytes": small[:, kinds[others] == _BYTE],
        "obs_numbers": numbers[:, kinds[others] == _WHOLE],
    }


def _same(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.bool_]:
    """Return [D]: true where columns of two arrays have the same bytes."""
    bits = np.dtype(f"u{second.itemsize}")
    same: NDArray[np.bool_] = (first.view(bits) == second.view(bits)).all(axis=0)
    return same


def unpack_observations(arrays: Arrays, kind: str, most_bytes: int) -> NDArray[Any]:
    """Unpack and remove observations of type ``kind`` from arrays, ``most_bytes`` at most. Raises ``BadPacking``."""
    names = ("obs_kinds", "obs_bits", "obs_bytes", "obs_numbers")
    kinds, bits, small, numbers = (arrays.pop(name) for name in names)
    rows, features = len(bits), kinds.size
    if rows * features * np.dtype(kind).itemsize > most_bytes:
        raise _bad(f"observations are {rows} x {features}, too many for the file")
    expected = {
        "obs_kinds": (kinds, "uint8", (features,)),
        "obs_bits": (bits, "uint8", (rows, -(-features // 8))),
        "obs_bytes": (small, "uint8", (rows, np.count_nonzero(kinds == _BYTE))),
        "obs_numbers": (numbers, kind, (rows, np.count_nonzero(kinds == _WHOLE))),
    }
    for name, (array, dtype, shape) in expected.items():
        if (array.dtype.name, array.shape) != (dtype, shape):
            raise _bad(f"{name} is {array.dtype} {array.shape}, not {dtype} {shape}")
    obs: NDArray[Any] = np.unpackbits(bits, axis=1, count=features).astype(kind, copy=False)
    obs[:, kinds == _BYTE] = small
    obs[:, kinds == _WHOLE] = numbers
    return obs


def deflate(arrays: Mapping[str, NDArray[Any]]) -> tuple[Arrays, dict[str, Declared]]:
    """Compress arrays where that pays; return all, and the types and shapes of the compressed ones."""
    stored, declared = dict(arrays), dict[str, Any]()
    for name, array in arrays.items():
        data = zlib.compress(array.tobytes(), level=1)
        if len(data) < _PAYS * array.nbytes:
            stored[name] = np.frombuffer(data, dtype=np.uint8)
            declared[name] = (array.dtype.name, array.shape)
    return stored, declared


def inflate(arrays: Arrays, declared: Mapping[str, Declared], most_bytes: int) -> None:
    """Replace compressed arrays by their content.

    Raises ``BadPacking`` for arrays that are not what they declare. More than ``most_bytes`` of content are refused
    before memory is taken.
    """
    sizes = {name: prod(shape) * np.dtype(kind).itemsize for name, (kind, shape) in declared.items()}
    if sum(sizes.values()) > most_bytes:
        raise _bad(f"{sum(sizes.values())} bytes are declared, too many for the file")
    for name, (kind, shape) in declared.items():
        stream = zlib.decompressobj()
        try:
            data = stream.decompress(arrays[name].tobytes(), max_length=sizes[name] + 1)
        except zlib.error as error:
            raise _bad(f"{name} cannot be decompressed ({error})") from error
        if len(data) != sizes[name] or not stream.eof:
            raise _bad(f"{name} does not hold the {sizes[name]} bytes that it declares")
        arrays[name] = np.frombuffer(data, dtype=kind).reshape(shape)


def _bad(complaint: str) -> BadPacking:
    return BadPacking(f"Not what was packed: {complaint}.", hint="Leave the shard out and play fresh games.")
