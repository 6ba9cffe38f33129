"""What holds of ratings whatever was played."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.league import EloTable, PairTotals, PlayedGame, Ratings, elo_changes, fit_bradley_terry, fit_plackett_luce

AGENTS = st.sampled_from(["random", "a", "b", "c", "d"])
FINITE = st.floats(-1e6, 1e6)


@st.composite
def games(draw: st.DrawFn) -> PlayedGame:
    seats = draw(st.lists(AGENTS, min_size=2, max_size=7))
    return PlayedGame.of(seats, draw(st.lists(st.integers(0, 6), min_size=len(seats), max_size=len(seats))))


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
    return PairTotals.of_games(first, second, wins, draws, losses)


@given(games(), st.dictionaries(AGENTS, st.floats(-3000, 3000), min_size=5))
def test_what_one_gains_others_lose(game, ratings) -> None:
    changes = elo_changes(ratings, game)
    assert sum(changes.values()) == pytest.approx(0, abs=1e-9)
    seats = {agent: game.agents.count(agent) for agent in game.agents}
    assert all(abs(change) <= 32 * seats[agent] for agent, change in changes.items())


@given(st.lists(games(), max_size=5), st.dictionaries(AGENTS, FINITE, min_size=5))
def test_an_elo_table_is_lossless_as_json(played, ratings) -> None:
    table = EloTable(ratings=ratings, fixed=frozenset({"random"})).after(played)
    assert EloTable.model_validate_json(table.model_dump_json()) == table


@given(totals())
def test_totals_have_two_sides(pair) -> None:
    assert pair.flipped.flipped.score == pytest.approx(pair.score)
    assert pair.flipped.squares >= 0
    assert pair.flipped.dispersion == pytest.approx(pair.dispersion, rel=1e-6)
    assert 0 < pair.dispersion <= max(1.0, pair.games / pair.rotations)


def sound(ratings: Ratings) -> None:
    assert ratings.rating("random") == (0, 0)
    assert all(0 < ratings.rating(agent).stderr < 10_000 for agent in ratings.agents if agent != "random")
    covariance = np.zeros((len(ratings.agents),) * 2)
    covariance[np.tril_indices(len(ratings.agents))] = ratings.covariance
    whole = covariance + covariance.T - np.diag(np.diag(covariance))
    assert np.linalg.eigvalsh(whole).min() >= -1e-6 * np.trace(whole)
    assert Ratings.model_validate_json(ratings.model_dump_json()) == ratings


DISPERSED = [PairTotals.of_rotations("random", "a", (5, *[0] * most)) for most in (4, 24)]
"""One loses all games, of two players and of four: so much dispersion that the error exceeds the prior's."""


@given(st.lists(totals(), max_size=10))
@example(DISPERSED)
def test_any_totals_can_be_rated(pairs) -> None:
    sound(fit_bradley_terry(pairs))


TIED = [PlayedGame.of(["random"] * 4 + ["a"], [0] * 5), PlayedGame.of(["random"] * 6 + ["a"], [0] * 6 + [1])]
"""The ties seem to withhold more than the games say."""


@given(st.lists(games(), max_size=20))
@example(TIED)
def test_any_games_can_be_rated(played) -> None:
    sound(fit_plackett_luce(played))


@given(st.lists(games(), min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_the_order_of_games_and_of_seats_changes_no_batch_rating(played, random) -> None:
    turned = []
    for game in random.sample(played, len(played)):
        seats = random.sample(list(zip(*game, strict=True)), len(game.agents))
        turned.append(PlayedGame.of(*zip(*seats, strict=True)))
    assert fit_plackett_luce(turned) == fit_plackett_luce(played)
