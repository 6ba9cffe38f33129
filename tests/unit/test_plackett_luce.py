"""Plackett-Luce fits: agreement with choix, clones and equal ranks."""

import choix
import numpy as np
import pytest
from independent_games import of_games

from app.league.bradley_terry import fit_bradley_terry
from app.league.plackett_luce import RankedGame, fit_plackett_luce
from app.league.ratings import PER_ELO, RatingPrior

FLAT = RatingPrior(deviation=1e6)
STRENGTHS = np.random.default_rng(3).normal(0, 1, 5)


def drawn_orders(count: int, seats: int) -> list[list[int]]:
    """Draw final orders of games by the model, best agent first. The agents of a game are all different."""
    rng, orders = np.random.default_rng(4), []
    for _ in range(count):
        agents = rng.choice(len(STRENGTHS), seats, replace=False)
        orders.append(agents[np.argsort(-(STRENGTHS[agents] + rng.gumbel(size=seats)))].tolist())
    return orders


def game(order: list[int]) -> RankedGame:
    return RankedGame(tuple(map(str, order)), tuple(range(1, len(order) + 1)))


def test_plackett_luce_agrees_with_choix() -> None:
    orders = drawn_orders(300, 4)
    reference = choix.opt_rankings(len(STRENGTHS), orders, tol=1e-12)
    ratings = fit_plackett_luce(map(game, orders), anchors={"0": 0.0}, prior=FLAT)
    assert np.allclose(np.array(ratings.elo) * PER_ELO, reference - reference[0], atol=1e-4)
    for agent, strength in enumerate(STRENGTHS[1:] - STRENGTHS[0], 1):
        found = ratings.rating(str(agent))
        assert abs(found.elo * PER_ELO - strength) < 3.5 * found.stderr * PER_ELO


def test_games_of_two_are_rated_as_by_bradley_terry() -> None:
    wins, losses, draws = 9, 3, 4
    pairs = [((1, 2), wins), ((2, 1), losses), ((1, 1), draws)]
    games = [RankedGame(("random", "a"), ranks) for ranks, count in pairs for _ in range(count)]
    expected = fit_bradley_terry([of_games("random", "a", wins, draws, losses)])
    assert fit_plackett_luce(games).rating("a").elo == pytest.approx(expected.rating("a").elo, abs=0.01)


def test_clones_and_equal_ranks_change_nothing_among_equals() -> None:
    even = fit_plackett_luce([RankedGame(("hero", "random", "hero"), (1, 2, 3))] * 5)
    assert even.rating("hero").elo == pytest.approx(0, abs=0.01)
    alone = fit_plackett_luce([RankedGame(("hero",) * 3, (1, 2, 3))])
    assert alone.agents == ("random",)
    first = fit_plackett_luce([RankedGame(("hero", "random"), (1, 2))] * 5).rating("hero").elo
    cloned = fit_plackett_luce([RankedGame(("hero", "random", "random"), (1, 2, 3))] * 5).rating("hero").elo
    assert cloned > first > 0
    tied = fit_plackett_luce([RankedGame(("a", "b", "c"), (1, 1, 1))] * 4, anchors={})
    assert tied.elo == pytest.approx([0, 0, 0], abs=0.01)
    won = fit_plackett_luce([RankedGame(("a", "b", "c"), (2, 1, 2))] * 4, anchors={})
    assert won.difference("a", "c").elo == pytest.approx(0, abs=0.01)
    assert won.difference("b", "a").elo > 100


def test_order_of_games_changes_nothing() -> None:
    games = [game(order) for order in drawn_orders(30, 3)]
    first, second = (fit_plackett_luce(some, anchors={"0": 0.0}) for some in (games, games[::-1]))
    assert np.allclose(first.elo, second.elo, atol=1e-6)
    assert np.allclose(first.covariance, second.covariance, rtol=1e-6)


def test_games_of_one_event_say_less_than_others() -> None:
    """Four copies of a game have the standard error of one."""
    ranks = [(1, 2), (2, 1), (1, 2)]
    once, apart, together = (
        fit_plackett_luce(
            [RankedGame(("random", "a"), row, event) for row, event in games], anchors={"random": 0.0}, prior=FLAT
        ).rating("a")
        for games in (
            [(row, None) for row in ranks],
            [(row, None) for row in ranks * 4],
            [(row, event) for event, row in enumerate(ranks)] * 4,
        )
    )
    assert once.elo == pytest.approx(apart.elo) == pytest.approx(together.elo)
    assert apart.stderr == pytest.approx(once.stderr / 2)
    assert together.stderr == pytest.approx(once.stderr)
