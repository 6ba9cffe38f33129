"""The pool: the agents whose games rate models, and retention."""

import math
from itertools import combinations, pairwise

import pytest
from independent_games import of_games
from leagues import model
from scipy.optimize import brentq

from flyball.app.core import expected_score
from flyball.app.league.bradley_terry import fit_bradley_terry
from flyball.app.league.pool import CANDIDATES, MISFIT, PRIOR, Pool, rate
from flyball.app.league.totals import PairTotals, total

MANY = 1000
ANCHORS = ("random", model(0), model(1))


def games(hero: str, other: str, difference: float, count: int = MANY) -> PairTotals:
    """Return the expected results of games at an Elo difference."""
    won = round(count * expected_score(difference))
    return of_games(hero, other, won, 0, count - won)


def grown(steps: int, stays: int = 1) -> Pool:
    pool, known = Pool(), {"random", model(0)}
    for step in range(1, steps):
        hero = model(step)
        played = [games(hero, model(step - 1), 20.0), games(hero, "random", 20.0 * step)]
        pool = pool.after(played, known, hero)
        known |= {hero} if step % stays == 0 else set()
    return pool


def named(pool: Pool) -> set[str]:
    return {name for pair in pool.pairs for name in (pair.first, pair.second)}


def test_games_of_models_that_may_be_rated_again_stay():
    pool = grown(100)
    assert named(pool) == {"random", *(model(step) for step in range(100))}
    assert pool.games()[model(3)] == 3 * MANY, "its own two matches, and its child's"
    pool = grown(60, stays=10)
    kept = {model(step) for step in range(10, 60, 10)}
    assert named(pool) == {"random", *kept, model(58), model(59)}
    assert pool.candidates == (model(58), model(59)), "either may be promoted yet"
    assert len(pool.candidates) == CANDIDATES


def test_candidates_keep_their_games_until_they_are_dropped():
    pool = Pool().after([games("one", "random", 100.0)], {"random"}, "one")
    pool = pool.after([games("two", "random", 100.0)], {"random", "one"}, "two")
    pool = pool.after([games("three", "random", 100.0)], {"random", "one"}, "three")
    pool = pool.after([games("four", "random", 100.0)], {"random", "one"}, "four")
    assert named(pool) == {"random", "one", "three", "four"}
    pool = Pool()
    for name in ("one", "two", "one", "three"):
        pool = pool.after([games(name, "random", 100.0)], {"random"}, name)
    assert pool.candidates == ("one", "three")
    assert pool.games()["one"] == 2 * MANY
    pool = Pool().after([games("one", "random", 100.0)], {"random"}, "one")
    also = pool.after([games("old", "new", 10.0), games("old", "gone", 10.0)], {"random", "old", "new"})
    assert named(also) == {"random", "one", "old", "new"}
    assert also.candidates == ("one",)


def test_random_bot_is_at_zero_and_the_pool_finds_the_others():
    assert grown(3).ratings("new").rating("new") == (0.0, pytest.approx(1600.0))
    ratings = grown(20).ratings(model(10))
    assert ratings.rating("random") == (0.0, 0.0)
    assert ratings.rating(model(10)).elo == pytest.approx(200.0, abs=5)


def mode(games: int, score: float) -> float:
    """Return the rating at which games against the random bot, weighted at this rating, and the prior balance."""

    def slope(elo: float) -> float:
        chance = 1 / (1 + 10 ** (-elo / 400))
        spread = chance * (1 - chance)
        weight = 1 / (1 + games * (MISFIT / spread) ** 2 / 4)
        return weight * games * (score - chance) - elo * 400 / (math.log(10) * PRIOR.deviation**2)

    return brentq(slope, 0, 2000)


@pytest.mark.parametrize("count", [10, 100, 1000])
def test_model_that_always_wins_is_rated_above_others(count: int):
    """Weights follow the rating, and the rating the weights: the fit has to settle where they agree."""
    always, mostly = (rate([of_games("x", "random", won, 0, count - won)]) for won in (count, count * 9 // 10))
    assert always.rating("x").elo == pytest.approx(mode(count, 1.0), abs=1)
    assert always.rating("x").elo > mostly.rating("x").elo > 300
    assert 400 < always.comparable()["x"].stderr < 600


def test_saturated_games_connect_and_bend_no_scale():
    chain = [games(model(step), model(step - 1), 100.0) for step in range(1, 13)]
    nearest = games(model(0), "random", 100.0)
    takes = [of_games(model(step), "random", 950, 0, 50) for step in range(4, 13)]
    ratings = rate([*chain, nearest, *takes])
    assert ratings.comparable() == rate([*chain, nearest]).comparable()
    assert ratings.difference(model(12), model(0)).elo == pytest.approx(1200.0, abs=40)
    near = games("early", "random", 70.0)
    apart = [games("late", "later", -35.0), *(of_games(one, "random", 95, 0, 5) for one in ("late", "later"))]
    ratings = rate([near, *apart])
    assert ratings.difference("late", "early").elo == pytest.approx(440.0, abs=30)
    assert ratings.difference("late", "early").stderr < 300.0
    near = [games("a", "b", 200.0), games("b", "c", 200.0), games("c", "d", 200.0)]
    few, many = (of_games("a", "d", 9 * count, 0, count) for count in (10, 10_000))
    assert rate([*near, few]).difference("a", "d").elo == pytest.approx(600.0, abs=30)
    assert rate([*near, many]).difference("a", "d").elo == pytest.approx(600.0, abs=60)
    assert fit_bradley_terry([*near, many]).difference("a", "d").elo < 400.0, "where all games count in full"


def test_bot_beaten_by_all_is_rated_by_its_least_saturated_pair():
    even = games("one", "two", 0.0)
    beaten = [of_games("one", "random", 970, 0, 30), of_games("two", "random", 930, 0, 70)]
    ratings = rate([even, *beaten])
    assert ratings.difference("two", "random") == rate([even, beaten[1]]).difference("two", "random")


def test_scores_that_ratings_cannot_explain_widen_all_intervals():
    """Rock, paper, scissors: all are equal, with wide intervals."""
    even = [games(one, other, 0.0) for one, other in combinations("abcd", 2)]
    circle = [games(one, other, 150.0) for one, other in ("ab", "bc", "cd", "da")] + even[1:2] + even[4:5]
    calm, torn = (rate(pairs, anchors={}).difference("a", "b").stderr for pairs in (even, circle))
    assert torn > 3 * calm


def test_the_scale_goes_on_where_the_random_bot_loses_every_game():
    """Old games between anchors still connect the scale to its zero."""
    pool = Pool().after([games(model(0), "random", 400.0)], ANCHORS, model(0))
    pool = pool.after([games(model(1), model(0), 400.0)], ANCHORS, model(1))
    for step in range(2, 60):
        hero = model(step)
        won = of_games(hero, "random", 200, 0, 0)
        pool = pool.after([won, games(hero, model(1), 300.0), games(hero, model(0), 700.0)], ANCHORS, hero)
    elo, stderr = pool.ratings(hero).rating(hero)
    assert elo == pytest.approx(1100.0, abs=40)
    lowest = pool.ratings(hero).rating(model(0)).stderr
    assert lowest < stderr < 200.0, "no rating is surer than the anchor that it is measured from"


def test_a_pool_survives_a_restart_bit_for_bit():
    pool = grown(30)
    again = Pool.from_json(pool.to_json())
    assert again == pool
    assert again.ratings("x").comparable() == pool.ratings("x").comparable()


def test_unbeaten_bot_is_above_a_bound_and_spoils_no_error() -> None:
    models = [model(number) for number in range(5)]
    games = [PairTotals.of_rotations(models[0], "random", (0, 0, 60, 20, 20))]
    games += [PairTotals.of_rotations(newer, older, (5, 20, 40, 25, 10)) for older, newer in pairwise(models)]
    unbeaten = [PairTotals.of_rotations("gnugo", name, (0, 0, 0, 0, 50)) for name in models]
    alone, together = Pool(pairs=total(games)), Pool(pairs=total([*games, *unbeaten]))
    before, after = alone.ratings(models[0]).comparable(), together.ratings(models[0]).comparable()
    assert after == before, "a bot that wins all games says nothing of how strong the models are"
    side, elo = together.bounds(after)["gnugo"]
    # 100 games won: the lower bound of the score is 96.3%, which 566 Elo explain
    assert (side, elo) == ("above", pytest.approx(max(after[name].elo for name in models) + 566, abs=1))


def test_bot_that_loses_all_games_is_below_a_bound() -> None:
    beaten = model(1)
    games = [
        PairTotals.of_rotations(beaten, "random", (0, 0, 60, 20, 20)),
        PairTotals.of_rotations("hopeless", beaten, (50, 0, 0, 0, 0)),
    ]
    pool = Pool(pairs=total(games))
    ratings = pool.ratings(beaten).comparable()
    assert pool.bounds(ratings)["hopeless"] == ("below", pytest.approx(ratings[beaten].elo - 566, abs=1))
    assert "hopeless" not in ratings
