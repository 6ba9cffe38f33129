"""Advantages, worked by hand."""

import numpy as np
import pytest
from shard_rows import rows_of

from app.learning.samples import advantages
from app.store import Shard


def trajectory(steps, rewards, values, *, done=(), truncated=(), bootstrap=0.0, seats=None, games=None) -> Shard:
    size = len(steps)
    ends, cuts, worth = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool), np.zeros(size, dtype=np.float32)
    ends[list(done)], cuts[list(truncated)] = True, True
    worth[list(truncated)] = bootstrap
    return rows_of(
        game=np.array(games or [0] * size, dtype=np.int32),
        seat=np.array(seats or [0] * size, dtype=np.int8),
        step=np.array(steps, dtype=np.int32),
        reward=np.array(rewards, dtype=np.float32),
        value=np.array(values, dtype=np.float32),
        done=ends,
        truncated=cuts,
        bootstrap=worth,
    )


def test_two_steps_by_hand():
    rows = trajectory([0, 1], [0, 1], [0.5, 0.25], done=[1])
    last = 1 - 0.25
    first = 0 + 0.9 * 0.25 - 0.5 + 0.9 * 0.8 * last
    assert advantages(rows, 0.9, 0.8) == pytest.approx([first, last])
    assert advantages(rows, 0.9, 0.8).dtype == np.float32
    backward = trajectory([1, 0], [1, 0], [0.25, 0.5], done=[0])
    assert advantages(backward, 0.9, 0.8) == pytest.approx([last, first])
    assert advantages(trajectory([], [], []), 0.9, 0.9).shape == (0,)


def test_seats_and_games_are_episodes_of_their_own():
    """Two seats play four rows in turn. No seat's estimate may look at another seat's rows."""
    rows = trajectory([0, 1, 2, 3], [0, 0, 1, -1], [0, 0, 0, 0], done=[2, 3], seats=[0, 1, 0, 1])
    assert advantages(rows, 1.0, 1.0) == pytest.approx([1, -1, 1, -1])
    other_game = trajectory([0, 0], [1, -1], [0, 0], done=[0, 1], games=[0, 1])
    assert advantages(other_game, 1.0, 1.0) == pytest.approx([1, -1])


def test_truncation_is_worth_the_critic_value_and_an_end_nothing():
    cut = trajectory([0], [0], [0.2], truncated=[0], bootstrap=0.8)
    assert advantages(cut, 0.9, 0.5) == pytest.approx([0.9 * 0.8 - 0.2])
    ended = trajectory([0], [0], [0.2], done=[0], truncated=[0], bootstrap=0.8)
    assert advantages(ended, 0.9, 0.5) == pytest.approx([-0.2]), "done beats truncated"
