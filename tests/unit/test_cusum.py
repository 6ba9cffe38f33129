"""Page's test itself, at a level that is known: how soon it tells a drop, how seldom it is wrong.

What can be had at best, at a threshold of its own; the watchdog has to measure the level, and discounts for that.

The statistic is a Markov chain on a grid, whose expected time to leave [0, threshold) solves a linear system (D. Brook
and D. A. Evans, Biometrika 59 (1972), 539-549). Between two points of the grid it is at each with a share.
"""

from math import modf

import numpy as np
import pytest

from app.controllers.watchdog import cusum_step
from app.core import expected_score

DROP, THRESHOLD, CELLS = 100.0, 6.25, 1000


def games_to_alarm(level: float, strength: float) -> float:
    """Return the mean number of games until an alarm, of a player whom the test believes at another level."""
    width = THRESHOLD / CELLS
    leave = np.eye(CELLS)
    win = expected_score(strength)
    for score, probability in ((1.0, win), (0.0, 1 - win)):
        for cell in range(CELLS):
            share, after = modf(cusum_step(cell * width, score, 1, level, DROP) / width)
            for point, part in ((int(after), 1 - share), (int(after) + 1, share)):
                if point < CELLS:
                    leave[cell, point] -= probability * part
    return float(np.linalg.solve(leave, np.ones(CELLS))[0])


@pytest.mark.parametrize("level", [0.0, 100.0, 200.0])
def test_where_the_level_is_known_170_games_tell_a_drop_and_false_alarms_are_15000_apart(
    level: float,
) -> None:
    assert games_to_alarm(level, level - DROP) <= 170
    assert games_to_alarm(level, level) >= 15_000


def test_who_got_better_is_suspected_even_less() -> None:
    assert games_to_alarm(0.0, 50.0) > 10 * games_to_alarm(0.0, 0.0)
