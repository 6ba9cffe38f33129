"""From the outcomes of single hands back to their points."""

import numpy as np
from numpy.typing import NDArray

from app.games.hearts.cards import POINTS, SEATS


def moons(outcomes: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Tell which seats [G, 4] shot the moon, from the outcomes of single hands [G, 4]: only that is worth 1."""
    shot: NDArray[np.bool_] = outcomes > 1 - 1 / POINTS
    return shot


def hand_points(outcomes: NDArray[np.float32], *, moon_for_shooter: bool) -> NDArray[np.int64]:
    """Return the points [G, 4] of single hands from their outcomes [G, 4], leads over the others' mean in 26 points.

    Args:
        outcomes: as a table returns them.
        moon_for_shooter: a moon is -26 for its shooter, instead of 26 for each other seat.
    """
    shooter = moons(outcomes)
    moon = np.where(shooter, -POINTS, 0) if moon_for_shooter else np.where(shooter, 0, POINTS)
    plain = np.rint((POINTS - (SEATS - 1) * POINTS * outcomes.astype(np.float64)) / SEATS).astype(np.int64)
    return np.where(shooter.any(axis=1, keepdims=True), moon, plain)
