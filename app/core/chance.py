"""Chance that follows from a seed alone: the same draw on every machine, with every version of every library.

Controllers draw with this and with nothing else: a generator's stream is only promised for one version of its library,
and a journal is replayed for longer than that.
"""

from collections.abc import Mapping
from typing import TypeVar

from app.core.seeds import SEED_BITS, derive_seed

MANTISSA_BITS = 53
T = TypeVar("T")


def derive_point(root: int, *purpose: str | int) -> float:
    """Derive a uniform point in [0, 1) from a seed and what the point is for."""
    return (derive_seed(root, *purpose) >> (SEED_BITS - MANTISSA_BITS)) / (1 << MANTISSA_BITS)


def draw(weights: Mapping[T, float], point: float) -> T:
    """Return the key on which a point in [0, 1) falls when all are laid side by side, as wide as their weights.

    Args:
        weights: finite, not negative, and not all 0; a key of weight 0 is never drawn. Their order matters.
        point: for instance from ``derive_point``.
    """
    left = point * sum(weights.values())
    drawn = [(key, weight) for key, weight in weights.items() if weight > 0]
    for key, weight in drawn:
        left -= weight
        if left < 0:
            return key
    return drawn[-1][0]  # rounding has left a crumb behind the last one


def lineup(weights: Mapping[T, float], seats: int, distinct: int, seed: int) -> tuple[T, ...]:
    """Draw who takes some seats, [seats].

    Every seat has the distribution of the weights, whatever ``distinct`` is: at most so many draws are made, and each
    is cloned over neighbouring seats, as evenly as possible. That keeps the number of models in memory small (cluster
    sampling, seed 001 §4).

    Args:
        weights: see ``draw``.
        seats: how many.
        distinct: at most so many different ones take them.
        seed: of the draws.
    """
    draws = [draw(weights, derive_point(seed, "seat", number)) for number in range(min(seats, distinct))]
    return tuple(draws[seat * len(draws) // seats] for seat in range(seats))
