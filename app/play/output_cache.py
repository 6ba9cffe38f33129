"""A cache of a network's outputs, because searches meet most positions more than once.

A move's search looks again at much of what the search before it saw below the move that was played. Outputs depend on
nothing but the observation (see ``app.learning.inference``), so a cache changes no result. Where few positions come
again, as in hex, it would cost more than it saves; so it gives up when a trial shows that.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import kernel
from app.games import Observations
from app.games.table import Floats, Indices

CACHE_BYTES = 1 << 25
"""Size of the outputs kept: those of the last few moves of a thousand games, where few moves are possible."""

TRIAL, WORTH = 1 << 16, 0.12
"""The cache goes on after this number of positions only if at least this share of them was known."""

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
    """Remembers a network's outputs; a newer position takes the place of an older one.

    Positions are told apart by 64-bit keys, so two of a million share one with a probability below 1e-7.
    """

    def __init__(self, network: PositionNetwork) -> None:
        self._network = network
        self._entries: Entries | None = None  # until their size is known
        self._asked = self._known = 0  # number of positions so far, and of those that were known

    def outputs(self, obs: Observations) -> Floats:
        """See ``PositionNetwork.outputs``."""
        if self._asked >= TRIAL and self._known < WORTH * self._asked:
            return self._network.outputs(obs)
        rows = np.ascontiguousarray(obs).view(np.uint8)
        if self._entries is None:
            outputs = self._network.outputs(obs)
            self._entries = _empty(rows.shape[1], outputs.shape[1])
            return outputs
        outputs = np.empty((len(rows), self._entries.outputs.shape[1]), dtype=np.float32)
        keys, unknown = _recall(self._entries, rows, outputs)
        if len(unknown):
            outputs[unknown] = found = self._network.outputs(obs[unknown])
            _remember(self._entries, keys[unknown], found)
        self._asked, self._known = self._asked + len(rows), self._known + len(rows) - len(unknown)
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
    """Fill ``outputs`` [K, C] of the known ones of K observations' bytes [K, D].

    Return the keys [K] of all observations, and the indices of those that are unknown. A key is the sum of the bytes
    times ``factors``, modulo 2^64.
    """
    keys, unknown, count = np.empty(len(rows), dtype=np.uint64), np.empty(len(rows), dtype=np.int64), 0
    for k in range(len(rows)):
        key = np.uint64(1)  # so that zeros alone are not taken for an empty entry
        for i in range(len(entries.factors)):
            key += np.uint64(rows[k, i]) * entries.factors[i]
        keys[k] = key
        entry = key % np.uint64(len(entries.keys))
        if entries.keys[entry] == key:
            outputs[k] = entries.outputs[entry]
        else:
            unknown[count] = k
            count += 1
    return keys, unknown[:count]


@kernel
def _remember(entries: Entries, keys: Keys, found: Floats) -> None:
    """Keep the outputs found [K, C] for positions with ``keys`` [K]."""
    for k in range(len(keys)):
        entry = keys[k] % np.uint64(len(entries.keys))
        entries.keys[entry], entries.outputs[entry] = keys[k], found[k]
