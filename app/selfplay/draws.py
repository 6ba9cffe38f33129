"""Random numbers named by what they are for, not by when they are drawn.

A game's draws are the same whichever games are played beside it, in whatever batches, by however many processes.
Source: SplitMix64 (Steele, Lea and Flood 2014), whose n-th output is a hash of seed + n times an odd constant.
"""

import numpy as np
from numpy.typing import NDArray

Streams = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def number_streams(seed: int, numbers: NDArray[np.int64]) -> Streams:
    """Return a stream of its own for each of ``numbers`` [K] under a seed in [0, 2**64)."""
    return _output(np.full(len(numbers), seed, dtype=np.uint64), numbers)


def draw_points(streams: Streams, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return uniform points in [0, 1) [K]: of each stream [K], the one with its number [K]."""
    return (_output(streams, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _output(seeds: Streams, numbers: NDArray[np.int64]) -> Streams:
    mixed: Streams = seeds + (numbers.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))
