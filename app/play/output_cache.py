"""A cache of a network's outputs, because the positions of searches repeat.

A move's search looks again at much of what the search before it saw below the move that was played. Outputs depend on
nothing but the observation on a CPU (see ``flyball.app.learning.inference``), so a cache changes no result there. Where
few positions repeat, as in hex, it would cost more than it saves; so it gives up when a trial shows that.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import kernel
from flyball.app.games import Observations
from flyball.app.games.table import Floats, Indices

CACHE_BYTES = 1 << 25
"""Size of the outputs kept: those of the last few moves of a thousand games, where few moves are possible."""

TRIAL, WORTH = 1 << 16, 0.12
"""After this number of positions the cache is kept only if at least this share of them had been seen before."""

Keys = NDArray[np.uint64]


class PositionNetwork(Protocol):
    """A network that estimates policies and values of positions."""

    def outputs(self, obs: Observations) -> Floats:
        """Return [K, A + 1] of observations [K, D]: logits of all actions, then the value for the seat to move."""


class Entries(NamedTuple):
    """N entries for observations of D bytes and outputs of C numbers."""

    factors: Keys  # [D] random odd numbers
    keys: Keys  # [N] of the positions, 0 in empty entries
    outputs: Floats  # [N, C]


class OutputCache:
    """Keeps a network's outputs; a newer position takes the place of an older one.

    A position is its 64-bit key, so two of a million are confused with a probability below 1e-7.
    """

    def __init__(self, network: PositionNetwork) -> None:
        self._network = network
        self._entries: Entries | None = None  # until their size is known, and after giving up
        self._lookups = self._hits = 0  # number of positions so far, and of those that had been seen before
        self._in_use = True

    def outputs(self, obs: Observations) -> Floats:
        """See ``PositionNetwork.outputs``."""
        rows = np.ascontiguousarray(obs).view(np.uint8)
        if self._entries is None or rows.shape[1] != len(self._entries.factors):
            outputs = self._network.outputs(obs)
            if self._in_use:
                self._entries = _empty(rows.shape[1], outputs.shape[1])
            return outputs
        outputs = np.empty((len(rows), self._entries.outputs.shape[1]), dtype=np.float32)
        keys, misses = _recall(self._entries, rows, outputs)
        if len(misses):
            outputs[misses] = computed = self._network.outputs(obs[misses])
            _remember(self._entries, keys[misses], computed)
        self._lookups, self._hits = self._lookups + len(rows), self._hits + len(rows) - len(misses)
        if self._lookups >= TRIAL and self._hits < WORTH * self._lookups:
            self._entries, self._in_use = None, False
        return outputs


def _empty(size: int, columns: int) -> Entries:
    """Return empty entries for observations of ``size`` bytes and outputs of ``columns`` numbers."""
    count = max(1, CACHE_BYTES // (4 * columns))
    return Entries(
        np.random.default_rng(0).integers(2**64, size=size, dtype=np.uint64) | np.uint64(1),
        np.zeros(count, dtype=np.uint64),
        np.empty((count, columns), dtype=np.float32),
    )


@kernel
def _recall(entries: Entries, rows: NDArray[np.uint8], outputs: Floats) -> tuple[Keys, Indices]:
    """Fill the rows of ``outputs`` [K, C] whose observations, as bytes [K, D], have entries.

    Return the keys [K] of all observations, and the indices of those without an entry. A key is the sum of the bytes
    times ``factors``, modulo 2^64.
    """
    keys, misses, count = np.empty(len(rows), dtype=np.uint64), np.empty(len(rows), dtype=np.int64), 0
    for k in range(len(rows)):
        key = np.uint64(1)  # so that zeros alone are not taken for an empty entry
        for i in range(len(entries.factors)):
            key += np.uint64(rows[k, i]) * entries.factors[i]
        keys[k] = key
        entry = key % np.uint64(len(entries.keys))
        if entries.keys[entry] == key:
            outputs[k] = entries.outputs[entry]
        else:
            misses[count] = k
            count += 1
    return keys, misses[:count]


@kernel
def _remember(entries: Entries, keys: Keys, outputs: Floats) -> None:
    """Keep the outputs [K, C] of positions with ``keys`` [K]."""
    for k in range(len(keys)):
        entry = keys[k] % np.uint64(len(entries.keys))
        entries.keys[entry], entries.outputs[entry] = keys[k], outputs[k]
