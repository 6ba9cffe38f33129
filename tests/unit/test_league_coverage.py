"""Coverage of rating errors: 95% intervals over simulated leagues."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from independent_games import of_games

from app.core import expected_score
from app.league.bradley_terry import fit_bradley_terry
from app.league.ratings import Ratings
from app.league.totals import PairTotals

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


def test_intervals_of_openings_played_from_both_sides() -> None:
    """The opening decides two games in three; most pairs are split."""
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


def test_the_error_of_a_difference_is_not_that_of_two_marginals() -> None:
    """Two agents played each other often, far from the anchor."""
    far = of_games("random", "agent a", 2, 0, 98)
    ratings = fit_bradley_terry([far, of_games("agent a", "agent b", 2000, 0, 2000)])
    a, b = ratings.rating("agent a"), ratings.rating("agent b")
    assert ratings.difference("agent a", "agent b").stderr < 7 < np.hypot(a.stderr, b.stderr) / 10
