"""Random numbers by number: a draw depends on its purpose, a seed and numbers, and not on when it is drawn."""

import numpy as np
from numpy.typing import NDArray

Streams = NDArray[np.uint64]
Indices = NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def number_streams(seed: int, numbers: Indices) -> Streams:
    """Return a random stream for each of ``numbers`` [K]. The streams derive from a seed in [0, 2**64)."""
    return _output(np.full(len(numbers), seed, dtype=np.uint64), numbers)


def draw_points(streams: Streams, numbers: Indices) -> NDArray[np.float64]:
    """Return the uniform point in [0, 1) at the position in ``numbers`` [K] of each stream [K]."""
    return (_output(streams, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _output(seeds: Streams, numbers: Indices) -> Streams:
    """Return SplitMix64 (Steele et al. 2014): hashes of seed + (number + 1) times an odd constant."""
    mixed: Streams = seeds + (numbers.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))
