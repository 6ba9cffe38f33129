"""Advantages of all episodes at once against one loop per episode, which computes them by their definition."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_rows import COLUMNS, rows_of

from flyball.app.learning.samples import UnfinishedEpisode, advantages
from flyball.app.store import Shard


def one_by_one(rows: Shard, gamma: float, gae_lambda: float) -> np.ndarray:
    """Compute advantages by their definition.

    A(t) is the sum over k of (gamma lambda)^k delta(t + k), within the episode.
    """
    result = np.zeros(len(rows.game))
    for game, seat in set(zip(rows.game.tolist(), rows.seat.tolist(), strict=True)):
        own = np.flatnonzero((rows.game == game) & (rows.seat == seat))
        own = own[np.argsort(rows.step[own])]
        running = 0.0
        for place in reversed(range(len(own))):
            row = own[place]
            if rows.done[row]:
                following, running = 0.0, 0.0
            elif rows.truncated[row]:
                following, running = rows.bootstrap[row], 0.0
            else:
                following = rows.value[own[place + 1]]
            delta = rows.reward[row] + gamma * following - rows.value[row]
            running = delta + gamma * gae_lambda * running
            result[row] = running
    return result


@st.composite
def trajectories(draw) -> Shard:
    """Draw rows of some games in any order. The part of each seat ends, perhaps more than once."""
    lengths = draw(st.lists(st.lists(st.integers(0, 6), min_size=2, max_size=4), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    cells = [(game, seat, k, n) for game, seats in enumerate(lengths) for seat, n in enumerate(seats) for k in range(n)]
    cells = [cells[i] for i in rng.permutation(len(cells))]
    game, seat, place, length = np.array(cells, dtype=np.int32).reshape(-1, 4).T
    size = len(cells)
    end, cut = rng.random(size) < 0.15, rng.random(size) < 0.5
    last = (place == length - 1) | end
    floats = rng.normal(size=(3, size)).astype(np.float32)
    return rows_of(
        game=game,
        seat=seat.astype(np.int8),
        step=place * 7 + seat,  # a seat has only some steps of a game
        reward=floats[0],
        value=floats[1],
        done=last & ~cut,
        truncated=last & (cut | end),  # an end counts more than a cut
        bootstrap=floats[2],
    )


@given(trajectories(), st.floats(0.5, 1), st.floats(0, 1))
@settings(deadline=None)
def test_agrees_with_the_definition_whatever_the_order_of_rows(rows, gamma, gae_lambda):
    found = advantages(rows, gamma, gae_lambda)
    assert found.dtype == np.float32
    assert np.allclose(found, one_by_one(rows, gamma, gae_lambda), atol=1e-4)


@given(trajectories(), st.integers(0, 2**32))
@settings(deadline=None)
def test_shuffling_the_rows_shuffles_the_advantages(rows, seed):
    order = np.random.default_rng(seed).permutation(len(rows.game))
    shuffled = rows_of(**{name: getattr(rows, name)[order] for name in COLUMNS})
    assert np.array_equal(advantages(shuffled, 0.9, 0.8), advantages(rows, 0.9, 0.8)[order])


@given(trajectories().filter(lambda rows: len(rows.game)))
@settings(deadline=None)
def test_an_episode_without_an_end_is_refused(rows):
    nothing = np.zeros(len(rows.game), dtype=bool)
    endless = replace(rows, done=nothing, truncated=nothing)
    with pytest.raises(UnfinishedEpisode, match="do not end"):
        advantages(endless, 0.9, 0.9)
