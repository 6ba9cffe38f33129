"""Page's test at a known level: detection delay and false alarms.

These are the best possible figures, at a threshold of the test's own. The watchdog has to measure the level, and
discounts for that.

The statistic is a Markov chain on a grid, whose expected time to leave [0, threshold) solves a linear system (D. Brook
and D. A. Evans, Biometrika 59 (1972), 539-549). A value between two grid points is shared between them.
"""

from math import modf

import numpy as np
import pytest

from flyball.app.controllers.watchdog import cusum_step
from flyball.app.core import expected_score

DROP, THRESHOLD, CELLS = 100.0, 6.25, 1000


def games_to_alarm(level: float, strength: float) -> float:
    """Return the mean number of games until an alarm.

    The test assumes that the player is at ``level``; the games are played at ``strength`` (both in Elo).
    """
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
def test_cusum_at_known_level_is_fast_and_rarely_false(level: float) -> None:
    """A drop is noticed within 170 games on average. False alarms are at least 15,000 games apart on average."""
    assert games_to_alarm(level, level - DROP) <= 170
    healthy = games_to_alarm(level, level)
    assert healthy >= 15_000
    assert games_to_alarm(level, level + 50.0) > 10 * healthy, "who got better is suspected even less"
