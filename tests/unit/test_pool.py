"""The pool: whose games rate models, and what the scale of ratings hangs on."""

import pytest
from leagues import checkpoint, league_of, model

from app.core import expected_score
from app.league import POOL, League, PairTotals, Pool, pinned

MANY = 1000


def games(hero: str, other: str, difference: float, count: int = MANY) -> PairTotals:
    """Return games as one expects them of players of such a difference."""
    won = round(count * expected_score(difference))
    return PairTotals.of_games(hero, other, won, 0, count - won)


def anchored(elo: float, stderr: float = 10.0, step: int = 0, **more):
    return checkpoint(step, elo, roles=("lasting",), **more).model_copy(update={"elo_stderr": stderr})


def grown(steps: int) -> Pool:
    """Return the pool after a line of models, each of which met the one before it and the random bot."""
    pool = Pool()
    for step in range(1, steps):
        before = games(model(step), model(step - 1), 20.0)
        pool = pool.after(model(step), [before, games(model(step), "random", 20.0 * step)])
    return pool


def test_who_has_not_played_for_the_longest_time_leaves_with_all_its_games() -> None:
    pool = grown(60)
    assert pool.agents == (*(model(step) for step in range(60 - POOL + 1, 59)), "random", model(59))
    assert {name for pair in pool.pairs for name in (pair.first, pair.second)} == {*pool.agents}
    assert len(pool.pairs) == len(pool.agents) - 1 + len(pool.agents) - 2


def test_opponents_stay_as_long_as_they_are_that() -> None:
    pool = Pool()
    for step in range(1, 60):
        pool = pool.after(model(step), [games(model(step), model(0), 100.0)])
    assert model(0) in pool.agents
    assert pool.games()[model(0)] == (POOL - 1) * MANY


def test_a_model_that_finished_nothing_has_the_rating_of_ignorance() -> None:
    rating = grown(3).after("new", []).ratings(League()).rating("new")
    assert rating == (0.0, pytest.approx(800.0))


def test_the_random_bot_is_at_zero_and_the_pool_finds_the_others() -> None:
    ratings = grown(20).ratings(League())
    assert ratings.rating("random") == (0.0, 0.0)
    assert ratings.rating(model(10)).elo == pytest.approx(200.0, abs=5)


def test_all_but_the_newest_lasting_anchor_keep_their_rating_and_its_error() -> None:
    league = league_of(anchored(400.0, 12.0), anchored(800.0, step=5), checkpoint(7, 900.0, roles=("elite",)))
    assert pinned(league) == {model(0): (400.0, 12.0)}
    assert pinned(league_of(anchored(400.0))) == {}


def test_the_scale_goes_on_where_the_random_bot_loses_every_game() -> None:
    """The anchors' own games against it were forgotten long ago."""
    league = league_of(anchored(800.0, 12.0), anchored(1150.0, step=5))
    won = [
        PairTotals.of_games("hero", "random", 200, 0, 0),
        games("hero", model(5), 200.0),
        games("hero", model(0), 500.0),
    ]
    pool = Pool().after("hero", won)
    elo, stderr = pool.ratings(league).rating("hero")
    assert elo == pytest.approx(1300.0, abs=10)
    assert 12.0 < stderr < 30.0, "no rating is surer than the anchor that it is measured from"
    assert pool.ratings(league).rating(model(5)).elo == pytest.approx(1100.0, abs=10), "the newest is free to move"
    assert pool.ratings(League()).rating("hero").elo < 1100.0, "without the anchor's rating there is nothing to go by"


def test_an_anchor_that_a_rollback_took_along_still_carries_the_scale() -> None:
    league = league_of(anchored(800.0), anchored(1150.0, step=5, retired=True))
    assert pinned(league) == {model(0): (800.0, 10.0)}
    assert pinned(league.forgetting(10_000)) == pinned(league)


def test_a_pool_survives_a_restart_bit_for_bit() -> None:
    pool = grown(30)
    again = Pool.model_validate_json(pool.model_dump_json())
    assert again == pool
    assert again.ratings(League()).model_dump_json() == pool.ratings(League()).model_dump_json()
