"""Batch fits of ratings, their errors, and totals of pairs. References are choix and published tables."""

from collections.abc import Iterator
from itertools import combinations, pairwise

import choix
import numpy as np
import pytest
from independent_games import of_games
from scipy.optimize import minimize

from flyball.app.core import expected_score
from flyball.app.league.audit import find_cycle
from flyball.app.league.bradley_terry import Quadratic, fit_bradley_terry, maximise
from flyball.app.league.plackett_luce import RankedGame, fit_plackett_luce
from flyball.app.league.ratings import PER_ELO, RatingPrior, Ratings
from flyball.app.league.totals import PairTotals, total

FLAT = RatingPrior(deviation=1e6)

# Citations among four journals of statistics: Stigler (1994), in A. Agresti, Categorical Data Analysis, 2002, p. 448.
CITED = {
    ("Comm Statist", "Biometrika"): 33, ("JASA", "Biometrika"): 320, ("JRSS-B", "Biometrika"): 284,
    ("Biometrika", "Comm Statist"): 730, ("JASA", "Comm Statist"): 813, ("JRSS-B", "Comm Statist"): 276,
    ("Biometrika", "JASA"): 498, ("Comm Statist", "JASA"): 68, ("JRSS-B", "JASA"): 325,
    ("Biometrika", "JRSS-B"): 221, ("Comm Statist", "JRSS-B"): 17, ("JASA", "JRSS-B"): 142,
}  # fmt: skip


def test_the_published_fit_of_a_published_table() -> None:
    """Estimates and errors are those of the R package BradleyTerry2."""
    pairs = [of_games(cited, citing, count, 0, 0) for (cited, citing), count in CITED.items()]
    ratings = fit_bradley_terry(pairs, anchors={"Biometrika": 0.0}, prior=FLAT)
    published = {"Comm Statist": (-2.94907, 0.10255), "JASA": (-0.47957, 0.06059), "JRSS-B": (0.26895, 0.07083)}
    for journal, (strength, stderr) in published.items():
        rating = ratings.rating(journal)
        assert rating.elo * PER_ELO == pytest.approx(strength, abs=1e-5)
        assert rating.stderr * PER_ELO == pytest.approx(stderr, abs=1e-5)


def test_anchors_hold_and_what_no_game_connects_keeps_its_prior() -> None:
    assert fit_bradley_terry([], anchors={}).agents == ()
    ratings = fit_bradley_terry([], anchors={"random": 0.0, "anchor": 300.0})
    assert (ratings.agents, ratings.elo.tolist()) == (("anchor", "random"), [300.0, 0.0])
    pairs = [of_games("a", "random", 50, 0, 50), of_games("a", "heuristic", 50, 0, 50)]
    ratings = fit_bradley_terry(pairs, anchors={"random": 0.0, "heuristic": 200.0})
    assert ratings.rating("heuristic") == (200, 0)
    assert ratings.rating("a").elo == pytest.approx(100, abs=2)
    ratings = fit_bradley_terry([of_games("a", "b", 50, 0, 50)])
    assert ratings.rating("a").elo == pytest.approx(0, abs=1e-6)
    assert ratings.rating("a").stderr > 500 > 40 > ratings.difference("a", "b").stderr


def test_scores_and_draws_have_their_certainty() -> None:
    for won, drawn, lost in ((700, 0, 300), (500, 400, 100)):
        ratings = fit_bradley_terry([of_games("a", "random", won, drawn, lost)], prior=FLAT)
        assert expected_score(ratings.rating("a").elo) == pytest.approx(0.7)
    rating = fit_bradley_terry([of_games("a", "random", 200, 0, 0)]).rating("a")
    assert 800 < rating.elo < 1600
    assert rating.stderr > 200
    decided = of_games("a", "random", 60, 0, 40)
    drawn = of_games("a", "random", 30, 60, 10)
    split = PairTotals.of_rotations("a", "random", (0, 0, 40, 0, 10))
    repeated = PairTotals.of_rotations("a", "random", (20, 0, 0, 0, 30))
    errors = [fit_bradley_terry([pair]).rating("a").stderr for pair in (split, drawn, decided, repeated)]
    assert errors == sorted(errors)
    assert errors[3] > 1.3 * errors[2] > 1.3**2 * errors[1]


def test_fit_depends_on_no_order_or_sign() -> None:
    rng = np.random.default_rng(0)
    names = ("random", *"abcdef")
    pairs = [of_games(a, b, *rng.integers(1, 50, 3)) for a, b in combinations(names, 2)]
    mixed = [pair.flipped if rng.random() < 0.5 else pair for pair in rng.permutation(np.array(pairs, dtype=object))]
    one, other = fit_bradley_terry(mixed), fit_bradley_terry(pairs)
    assert (one.agents, one.elo.tolist()) == (other.agents, other.elo.tolist())
    assert one.covariance.tolist() == other.covariance.tolist()
    ratings = fit_bradley_terry([of_games("a", "random", 7, 1, 3), of_games("b", "a", 3, 0, 1)])
    forth, back = ratings.difference("a", "b"), ratings.difference("b", "a")
    assert (forth.elo, forth.stderr) == (-back.elo, back.stderr)
    assert ratings.difference("a", "random") == ratings.rating("a")
    assert ratings.difference("a", "a") == (0, 0)


def test_posterior_mode_and_hundreds_at_once() -> None:
    rng, truth = np.random.default_rng(0), np.random.default_rng(1).normal(300, 200, 300)
    pairs = [of_games("random", "0", 50, 0, 50)]
    for a in range(300):
        for b in rng.choice(300, 6, replace=False).tolist():
            won = int(rng.binomial(100, expected_score(truth[a] - truth[b])))
            pairs += [of_games(str(a), str(b), won, 0, 100 - won)] if a != b else []
    ratings = fit_bradley_terry(pairs)
    assert len(ratings.agents) == 301
    fitted = np.array([ratings.rating(str(a)).elo for a in range(300)])
    assert np.std(fitted - truth) < 25
    assert find_cycle(pairs) is None
    rng, names = np.random.default_rng(5), ("random", "a", "b", "c")
    pairs = [of_games(one, other, *rng.integers(1, 9, 3)) for one, other in combinations(names, 2)]
    prior = RatingPrior(mean=50.0, deviation=200.0)
    ratings = fit_bradley_terry(pairs, prior=prior)

    def loss(elo: np.ndarray) -> float:
        rated = dict(zip(names, [0.0, *elo], strict=True))
        value = sum(((one - prior.mean) / prior.deviation) ** 2 / 2 for one in elo)
        for pair in pairs:
            expected = expected_score(rated[pair.first] - rated[pair.second])
            value -= pair.score * np.log(expected) + (pair.games - pair.score) * np.log(1 - expected)
        return float(value)

    best = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-9}).x
    assert [ratings.rating(name).elo for name in names[1:]] == pytest.approx(best.tolist(), abs=0.05)


class TestTotals:
    def test_totals_add_up_and_know_their_variance(self) -> None:
        games, pairs = of_games("a", "b", 6, 2, 4), PairTotals.of_rotations("a", "b", (4, 0, 2, 0, 6))
        assert (pairs.games, pairs.rotations, pairs.score) == (24, 12, 14)
        assert pairs.dispersion == pytest.approx(2 * games.dispersion, rel=0.25)
        parts = [of_games("b", "a", 1, 2, 3), of_games("a", "b", 10, 0, 0)]
        assert total(parts) == (of_games("a", "b", 13, 2, 1),)
        assert of_games("a", "b", 3, 0, 0).dispersion == 1
        assert of_games("a", "b", 0, 100, 0).dispersion < 0.05


NAMES = ("random", *(f"agent {letter}" for letter in "abcdef"))


def leagues(count: int, seed: int) -> Iterator[tuple[np.ndarray, np.random.Generator]]:
    """Yield true ratings, the random bot's first, and a random generator."""
    for rng in np.random.default_rng(seed).spawn(count):
        yield np.concatenate([[0.0], rng.normal(250.0, 200.0, len(NAMES) - 1)]), rng


def held(ratings: Ratings, truth: np.ndarray) -> tuple[int, int]:
    """Count intervals, of ratings and of neighbours' differences, that hold the truth."""
    known = dict(zip(NAMES, truth, strict=True))
    alone = [ratings.rating(name).interval() for name in NAMES[1:]]
    inside = sum(low <= elo <= high for (low, high), elo in zip(alone, truth[1:], strict=True))
    pairs = list(pairwise(NAMES[1:]))
    apart = [(ratings.difference(a, b).interval(), known[a] - known[b]) for a, b in pairs]
    return inside, sum(low <= elo <= high for (low, high), elo in apart)


def covers(counts: list[tuple[int, int]]) -> None:
    singles, differences = np.sum(counts, axis=0)
    agents = len(NAMES) - 1
    assert 0.93 <= singles / (agents * len(counts)) <= 0.97
    assert 0.93 <= differences / ((agents - 1) * len(counts)) <= 0.97


def met(rng: np.random.Generator) -> list[tuple[int, int]]:
    """Draw pairs of opponents: a chain that connects all, and others."""
    chance = [tuple(sorted(rng.choice(len(NAMES), 2, replace=False).tolist())) for _ in range(2 * len(NAMES))]
    return sorted({*zip(range(len(NAMES) - 1), range(1, len(NAMES)), strict=True), *chance})


@pytest.mark.parametrize("draws", [0.0, 0.3, 0.7])
def test_intervals_of_games_of_two(draws) -> None:
    """``draws`` is the share of draws between equals."""
    counts = []
    for truth, rng in leagues(600, seed=1):
        pairs = []
        for a, b in met(rng):
            score = expected_score(truth[a] - truth[b])
            drawn = draws * min(score, 1 - score)
            won, tied, lost = rng.multinomial(60, [score - drawn / 2, drawn, 1 - score - drawn / 2])
            pairs.append(of_games(NAMES[a], NAMES[b], won, tied, lost))
        counts.append(held(fit_bradley_terry(pairs), truth))
    covers(counts)


def test_intervals_of_openings_and_of_differences() -> None:
    counts = []
    for truth, rng in leagues(600, seed=2):
        pairs = []
        for a, b in met(rng):
            score = expected_score(truth[a] - truth[b])
            split = 2 / 3 * min(score, 1 - score) / max(score, 1 - score)
            alone = (score - split / 2) / (1 - split)
            chances = split * np.array([0, 0, 1, 0, 0]) + (1 - split) * np.array(
                [(1 - alone) ** 2, 0, 2 * alone * (1 - alone), 0, alone**2]
            )
            pairs.append(PairTotals.of_rotations(NAMES[a], NAMES[b], tuple(rng.multinomial(40, chances).tolist())))
        counts.append(held(fit_bradley_terry(pairs), truth))
    covers(counts)
    far = of_games("random", "agent a", 2, 0, 98)
    ratings = fit_bradley_terry([far, of_games("agent a", "agent b", 2000, 0, 2000)])
    a, b = ratings.rating("agent a"), ratings.rating("agent b")
    assert ratings.difference("agent a", "agent b").stderr < 7 < np.hypot(a.stderr, b.stderr) / 10


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


def test_games_in_any_order_or_of_one_event() -> None:
    games = [game(order) for order in drawn_orders(30, 3)]
    first, second = (fit_plackett_luce(some, anchors={"0": 0.0}) for some in (games, games[::-1]))
    assert np.allclose(first.elo, second.elo, atol=1e-6)
    assert np.allclose(first.covariance, second.covariance, rtol=1e-6)
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


def test_newton_step_that_overshoots_is_halved() -> None:
    """Whole steps diverge on -sqrt(1 + x²): they lead from x to -x³."""

    def hill(x) -> Quadratic:
        root = np.sqrt(1 + x @ x)
        return Quadratic(-root, -x / root, np.diag(1 / root**3 * np.ones(1)))

    (top,), there = maximise(hill, np.array([2.0]))
    assert (top, there.value) == (pytest.approx(0, abs=1e-5), pytest.approx(-1))


def test_games_of_two_are_as_uncertain_as_by_bradley_terry() -> None:
    wins, losses = 60, 40
    games = [RankedGame(("random", "a"), ranks) for ranks, n in (((1, 2), wins), ((2, 1), losses)) for _ in range(n)]
    expected = fit_bradley_terry([of_games("random", "a", wins, 0, losses)]).rating("a")
    assert fit_plackett_luce(games).rating("a").stderr == pytest.approx(expected.stderr, rel=0.05)
