"""Batch fits of ratings, and the totals of pairs behind them. References are choix and published tables."""

from itertools import combinations

import numpy as np
import pytest
from independent_games import of_games
from scipy.optimize import minimize

from app.core import expected_score
from app.league.audit import find_cycle
from app.league.bradley_terry import fit_bradley_terry
from app.league.ratings import PER_ELO, RatingPrior
from app.league.totals import PairTotals, total

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


def test_the_fit_is_the_posterior_mode() -> None:
    """Comparison with a general optimiser, with the prior and draws."""
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


def test_hundreds_of_agents_are_rated_at_once() -> None:
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


class TestTotals:
    def test_totals_add_up_and_know_their_variance(self) -> None:
        games, pairs = of_games("a", "b", 6, 2, 4), PairTotals.of_rotations("a", "b", (4, 0, 2, 0, 6))
        assert (pairs.games, pairs.rotations, pairs.score) == (24, 12, 14)
        assert pairs.dispersion == pytest.approx(2 * games.dispersion, rel=0.25)
        parts = [of_games("b", "a", 1, 2, 3), of_games("a", "b", 10, 0, 0)]
        assert total(parts) == (of_games("a", "b", 13, 2, 1),)
        assert of_games("a", "b", 3, 0, 0).dispersion == 1
        assert of_games("a", "b", 0, 100, 0).dispersion < 0.05
