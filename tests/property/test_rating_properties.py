"""Properties of ratings after any games."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from independent_games import of_games

from flyball.app.league.bradley_terry import fit_bradley_terry
from flyball.app.league.ratings import Ratings
from flyball.app.league.totals import PairTotals

AGENTS = st.sampled_from(["random", "a", "b", "c", "d"])


@st.composite
def totals(draw: st.DrawFn) -> PairTotals:
    first, second = draw(st.lists(AGENTS, min_size=2, max_size=2, unique=True))
    if draw(st.booleans()):
        players = draw(st.integers(2, 7))
        counts = np.zeros(2 * players * (players - 1) + 1, dtype=int)
        for outcome in draw(st.lists(st.integers(0, len(counts) - 1), min_size=1, max_size=5)):
            counts[outcome] += draw(st.integers(1, 50))
        return PairTotals.of_rotations(first, second, tuple(counts.tolist()))
    wins, draws, losses = draw(st.tuples(*[st.integers(0, 50)] * 3).filter(any))
    return of_games(first, second, wins, draws, losses)


@given(totals())
def test_totals_have_two_sides(pair) -> None:
    assert pair.flipped.flipped.score == pytest.approx(pair.score)
    assert pair.flipped.squares >= 0
    assert pair.flipped.dispersion == pytest.approx(pair.dispersion, rel=1e-6)
    assert 0 < pair.dispersion <= max(1.0, pair.games / pair.rotations)


def sound(ratings: Ratings) -> None:
    assert ratings.rating("random") == (0, 0)
    assert all(0 < ratings.rating(agent).stderr < 10_000 for agent in ratings.agents if agent != "random")
    assert (ratings.covariance == ratings.covariance.T).all()
    assert np.linalg.eigvalsh(ratings.covariance).min() >= -1e-6 * np.trace(ratings.covariance)


DISPERSED = [PairTotals.of_rotations("random", "a", (5, *[0] * most)) for most in (4, 24)]
"""One loses all games, of two players and of four: so much dispersion that the error exceeds the prior's."""


@given(st.lists(totals(), max_size=10))
@example(DISPERSED)
def test_any_totals_can_be_rated(pairs) -> None:
    sound(fit_bradley_terry(pairs))
