"""Newton's method for concave functions, which all our likelihoods with their priors are."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core import FlyballError

Floats = NDArray[np.float64]

MAX_STEPS = 100
TOLERANCE = 1e-16
"""Gain of a step, relative to the function's value, after which no other is worth taking: each squares the error."""

ROUNDING = 1e-12
"""By so much, relative to its value, a function may seem to fall where it only is not computed more exactly."""


class NoConvergence(FlyballError):
    """The maximum was not found."""


class Point(NamedTuple):
    """A function at a point: value, gradient [A], and its curvature, the negative Hessian [A, A]."""

    value: float
    gradient: Floats
    curvature: Floats


def maximise(function: Callable[[Floats], Point], start: Floats) -> tuple[Floats, Point]:
    """Return where a concave function is greatest, and the function there. Raises ``NoConvergence``.

    A step that would go down is halved until it does not.
    """
    here, there = start, function(start)
    for _ in range(MAX_STEPS):
        step = np.asarray(np.linalg.solve(there.curvature, there.gradient), dtype=np.float64)
        gain = float(step @ there.gradient)
        here, there = _uphill(function, here, there, step)
        if gain <= TOLERANCE * (1 + abs(there.value)):
            return here, there
    raise NoConvergence(
        f"A rating fit did not converge in {MAX_STEPS} steps.",
        hint="Report it with the games; a prior with a smaller deviation helps meanwhile.",
    )


def _uphill(function: Callable[[Floats], Point], here: Floats, there: Point, step: Floats) -> tuple[Floats, Point]:
    size = 1.0
    while (tried := function(here + size * step)).value < there.value - ROUNDING * (1 + abs(there.value)):
        size /= 2
    return here + size * step, tried


def sums(places: NDArray[np.int64], values: Floats, length: int) -> Floats:
    """Add up values by the places they belong to, numbers below ``length``."""
    return np.asarray(np.bincount(places.ravel(), values.ravel(), length), dtype=np.float64)
