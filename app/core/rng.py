"""Random numbers, in one stream for each purpose.

All streams derive from the run's one seed. A draw is the same on every machine and with every version of every library.
Controllers draw only with this module, because a library promises a generator's stream for one version only, and later
versions replay the journal.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from hashlib import shake_128
from itertools import accumulate
from struct import unpack
from typing import Generic, TypeVar

from flyball.app.core.ids import derive_id, prefixed

POINT_BYTES, MANTISSA_BITS = 8, 53
T = TypeVar("T")


def derive_points(root: int, *purpose: str | int, count: int) -> tuple[float, ...]:
    """Derive independent uniform points in [0, 1), [count].

    The points follow from a seed and their purpose. All points come from one hash, because a scheduler draws thousands
    a second.
    """
    stream = shake_128(prefixed("points", root, *purpose)).digest(POINT_BYTES * count)
    spare, scale = 8 * POINT_BYTES - MANTISSA_BITS, 1 / (1 << MANTISSA_BITS)
    return tuple([(word >> spare) * scale for word in unpack(f">{count}Q", stream)])


def derive_point(root: int, *purpose: str | int) -> float:
    """Derive a uniform point in [0, 1) from seed and purpose."""
    return derive_points(root, *purpose, count=1)[0]


class Wheel(Generic[T]):
    """A discrete distribution over keys, prepared once for any number of draws.

    Args:
        weights: finite, not negative, and not all 0; a key of weight 0 is never drawn. Their order affects the draws.
    """

    def __init__(self, weights: Mapping[T, float]) -> None:
        self._keys = [key for key, weight in weights.items() if weight > 0]
        self._ends = list(accumulate(weights[key] for key in self._keys))

    def draw(self, point: float) -> T:
        """Return the key at a uniform point in [0, 1), as ``derive_points`` returns it."""
        return self.draws((point,))[0]

    def draws(self, points: Iterable[float]) -> list[T]:
        """Return the key at each point."""
        keys, ends, whole, last = self._keys, self._ends, self._ends[-1], len(self._keys) - 1
        return [keys[min(bisect_right(ends, point * whole), last)] for point in points]  # rounding may reach the end


def lineups(
    weights: Mapping[T, float], count: int, *, seats: int, distinct: int, seed: int, most: int | None = None
) -> list[tuple[T, ...]]:
    """Draw several lineups of players, [count][seats].

    Every seat has the distribution of the weights. At most ``distinct`` players are drawn for a lineup, and each takes
    neighbouring seats, as evenly as possible, which keeps the number of models in memory small (cluster sampling).

    Args:
        weights: see ``Wheel``.
        count: number of lineups.
        seats: seats of each lineup.
        distinct: most players of one lineup.
        seed: seed of the draws.
        most: most players of all lineups together; every seat keeps the distribution of the weights.
    """
    wheel, draws = Wheel(weights), min(seats, distinct)
    total = count * draws
    points = total if most is None or most >= len(weights) else min(total, most)
    drawn = wheel.draws(derive_points(seed, "lineups", count=points))
    drawn = [drawn[index % len(drawn)] for index in range(total)]
    offsets = [seat * draws // seats for seat in range(seats)]
    return [tuple([drawn[first + offset] for offset in offsets]) for first in range(0, total, draws)]


def derive_seed(root: int, *purpose: str | int) -> int:
    """Derive a seed in [0, 2**63) for a purpose.

    The seed follows from the run's seed and the purpose.

    Example: ``derive_seed(run_seed, "connect_four_2p", "selfplay", 17)``.
    """
    return int(derive_id("seed", root, *purpose), 16) % (1 << 63)
