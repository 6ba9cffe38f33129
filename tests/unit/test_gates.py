"""Sequential test of promotions: published values, exact reference, error rates.

The error rates are those over 10,000 gates.
"""

from collections.abc import Sequence
from functools import cache
from math import log

import numpy as np
import pytest
from scipy.optimize import brentq

from flyball.app.core import PLAYERS_OF, GradedScores, expected_score, gsprt_llr, sprt_verdict
from flyball.app.core.statistics import PSEUDO_COUNT
from flyball.app.play.match_statistics import count_rotations

GATES = 10_000
BOUNDS = (-20.0, 20.0)

# Values published with the tests of fastchess (app/tests/sprt_test.cpp), for alpha = beta = 0.05 and logistic Elo.
PUBLISHED = [
    ((21184, 40708, 21404), (0.5, 2.5), -1.57),
    ((57030, 106593, 57433), (0, 2), -2.59),
    ((223, 9863, 20279 + 1000, 10037, 246), (0.5, 2.5), -3.07),
    ((871, 26175, 55003 + 980, 26678, 821), (0, 2), -4.98),
]


@pytest.mark.parametrize(("counts", "bounds", "llr"), PUBLISHED)
def test_the_ratio_is_the_published_one(counts, bounds, llr) -> None:
    assert gsprt_llr(counts, *bounds) == pytest.approx(llr, abs=0.005)


def test_pairs_that_end_even_are_more_evidence_at_the_same_score() -> None:
    """Two gates of a recorded run, as operating.md explains them: 400 games each, 50% and 53%."""
    assert gsprt_llr((0, 7, 185, 8, 0), -80, 0) == pytest.approx(121.6, abs=0.05)
    assert gsprt_llr((23, 34, 81, 22, 40), -80, 0) == pytest.approx(18.1, abs=0.05)


def exact_llr(counts: Sequence[float], elo0: float, elo1: float) -> float:
    smoothed = np.array(counts) + PSEUDO_COUNT / len(counts)
    shares, scores = smoothed / smoothed.sum(), np.linspace(0, 1, len(counts))

    def constrained(mean: float) -> np.ndarray:
        off = scores - mean
        tilt = brentq(lambda x: (shares * off / (1 + x * off)).sum(), -1 / off[-1] + 1e-9, -1 / off[0] - 1e-9)
        return shares / (1 + tilt * off)

    ratio = np.log(constrained(expected_score(elo1)) / constrained(expected_score(elo0)))
    return float(smoothed @ ratio)


def llr_of_many(counts: np.ndarray, elo0: float, elo1: float) -> np.ndarray:
    """Do as ``gsprt_llr`` for many gates at once, counts [outcomes, gates]."""
    smoothed = counts + PSEUDO_COUNT / len(counts)
    scores = np.linspace(0, 1, len(counts))[:, None]
    near, far = (((scores - expected_score(elo)) ** 2 * smoothed).sum(axis=0) for elo in (elo1, elo0))
    return smoothed.sum(axis=0) / 2 * np.log(far / near)


@pytest.mark.parametrize("outcomes", [3, *PLAYERS_OF])
def test_many_gates_at_once_are_the_same_gates(outcomes) -> None:
    counts = np.random.default_rng(outcomes).integers(0, 40, (outcomes, 20))
    for one, llr in zip(counts.T, llr_of_many(counts, *BOUNDS), strict=True):
        assert gsprt_llr(one.tolist(), *BOUNDS) == pytest.approx(llr)


def gates(shares: np.ndarray, games: int, seed: int, counted: int = 1, number: int = GATES) -> tuple[float, float]:
    rng, counts = np.random.default_rng(seed), np.zeros((len(shares), number))
    live, played, accepted = np.arange(number), np.zeros(number), 0
    while len(live):
        counts[:, live] += counted * rng.multinomial(1, shares, len(live)).T
        played[live] += games
        llr = llr_of_many(counts[:, live], *BOUNDS)
        accepted += int((llr >= log(19)).sum())
        live = live[np.abs(llr) < log(19)]
    return accepted / number, float(played.mean())


def single(elo: float, draws: float = 0.0) -> np.ndarray:
    """Return the shares of lost, drawn and won games. ``draws`` is the share of draws between equals."""
    score = expected_score(elo)
    drawn = draws * min(score, 1 - score)
    return np.array([1 - score - drawn / 2, drawn, score - drawn / 2])


def opened(elo: float, draws: float, opening: float, *, swapped: bool) -> np.ndarray:
    """Return the shares of results of games, or of pairs that swap the colours, with uneven openings.

    What an opening is worth to the first colour is normal, with a standard deviation of ``opening`` Elo.
    """
    advantages, weights = np.polynomial.hermite_e.hermegauss(21)

    def mixed(strength: float) -> np.ndarray:
        first = [single(strength + opening * advantage, draws) for advantage in advantages]
        second = reversed(first)  # the advantages are symmetric
        games = [np.convolve(a, b) for a, b in zip(first, second, strict=True)] if swapped else first
        return np.array(weights @ np.array(games) / weights.sum())

    def excess(strength: float) -> float:
        shares = mixed(strength)
        return float(shares @ np.linspace(0, 1, len(shares))) - expected_score(elo)

    return mixed(brentq(excess, -400, 400))


@cache
def dealt(elo: float, players: int, seed: int = 0) -> np.ndarray:
    """Return the shares of rotations among ``players``."""
    rng, rotations = np.random.default_rng(seed), 100_000
    strength = np.zeros(players)
    strength[0] = elo * np.log(10) / 400
    shown = strength + rng.gumbel(size=(rotations * players, players))
    beaten = (shown[:, :1] > shown[:, 1:]).mean(axis=1)
    return np.array(count_rotations(beaten, players)) / rotations


MODELS = {
    "games": lambda elo: (single(elo), 1),
    "games, half of them drawn": lambda elo: (single(elo, 0.5), 1),
    "pairs of openings worth 150 Elo": lambda elo: (opened(elo, 0.1, 150.0, swapped=True), 2),
    "deals among three": lambda elo: (dealt(elo, 3), 3),
    "deals among seven": lambda elo: (dealt(elo, 7), 7),
}


@pytest.mark.parametrize("model", ["games", "games, half of them drawn", "pairs of openings worth 150 Elo"])
@pytest.mark.parametrize("elo", [-50, -20, 0, 20, 50])
def test_until_it_decides_the_ratio_is_close_to_the_exact_one(model, elo) -> None:
    rng, (shares, games) = np.random.default_rng(1), MODELS[model](elo)
    for _ in range(60):
        counts = rng.multinomial(rng.integers(10, 200 // games), shares)
        exact = exact_llr(counts, *BOUNDS)
        assert abs(exact) > 4 or gsprt_llr(counts.tolist(), *BOUNDS) == pytest.approx(exact, abs=0.15)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("bound", BOUNDS)
def test_10000_gates_at_a_bound_err_at_most_as_often_as_allowed(model, bound) -> None:
    accepted, _ = gates(*MODELS[model](bound), seed=1)
    assert (accepted if bound < 0 else 1 - accepted) <= 0.055


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("elo", [-50.0, 50.0])
def test_50_elo_are_decided_within_190_games_on_average(model, elo) -> None:
    accepted, games = gates(*MODELS[model](elo), seed=2, number=2000)
    assert games <= 190
    assert (1 - accepted if elo > 0 else accepted) <= 0.005


def test_pairs_need_fewer_games_than_games_of_such_openings() -> None:
    pairs, games = (opened(50.0, 0.1, 150.0, swapped=swapped) for swapped in (True, False))
    assert gates(pairs, 2, seed=3, number=2000)[1] < 0.9 * gates(games, 1, seed=3, number=2000)[1]


def test_games_that_repeat_each_other_are_no_more_evidence() -> None:
    """Counting games instead of pairs triples the errors here. The second game of a pair goes as the first did."""
    lost, _, won = single(-20.0)
    assert gates(np.array([lost, 0, 0, 0, won]), 2, seed=4)[0] <= 0.055
    assert gates(np.array([lost, 0, won]), 2, seed=4, counted=2)[0] > 0.12


@pytest.mark.parametrize("bound", BOUNDS)
def test_gates_of_skewed_outcomes_err_as_rarely(bound: float) -> None:
    """The outcomes are a chip won in 8 of 10 games, and otherwise 10 lost, for each of two seats."""
    rng, gates, batch, wrong = np.random.default_rng(6), 400, 50, 0
    for _ in range(gates):
        graded, verdict = None, "continue"
        while verdict == "continue":
            chips = np.where(rng.random((batch, 2, 2)) < 0.8, 1.0, -10.0)
            leads = 2 * (chips[..., 0] - chips[..., 1])  # their root mean square without ties is 22
            scores = (expected_score(bound) + leads / (2 * 22)).mean(axis=1)
            squares = float((scores**2).sum())
            new = GradedScores(players=2, rotations=batch, total=float(scores.sum()), squares=squares)
            graded = new.plus(graded)
            verdict = sprt_verdict(gsprt_llr((0,) * 5, *BOUNDS, graded), 0.05, 0.05)
        wrong += verdict == ("accept" if bound < 0 else "reject")
    assert wrong / gates <= 0.05


def test_moments_of_half_points_give_the_ratio_of_their_counts() -> None:
    counts, scores = (3, 8, 20, 12, 7), np.repeat(np.linspace(0, 1, 5), (3, 8, 20, 12, 7))
    moments = GradedScores(players=2, rotations=50, total=scores.sum(), squares=(scores**2).sum())
    assert gsprt_llr((0,) * 5, *BOUNDS, moments) == pytest.approx(gsprt_llr(counts, *BOUNDS))
    for nothing in ((0, 0, 1000, 0, 0), (0, 0, 0)):  # but draws, or no games
        assert gsprt_llr(nothing, *BOUNDS) == pytest.approx(0)
