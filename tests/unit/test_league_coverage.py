"""Whether the errors of ratings are what they say: 95% intervals over simulated leagues."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from app.core import expected_score
from app.league import PairTotals, PlayedGame, Ratings, fit_bradley_terry, fit_plackett_luce
from app.league.scale import PER_ELO

NAMES = ("random", *(f"agent {letter}" for letter in "abcdef"))


def leagues(count: int, seed: int) -> Iterator[tuple[np.ndarray, np.random.Generator]]:
    """Iterate over true ratings, the random bot's first, with a source of luck."""
    for rng in np.random.default_rng(seed).spawn(count):
        yield np.concatenate([[0.0], rng.normal(250.0, 200.0, len(NAMES) - 1)]), rng


def held(ratings: Ratings, truth: np.ndarray) -> tuple[int, int]:
    """Count the ratings and the differences of neighbours whose intervals hold the truth."""
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
    """Draw who meets whom: a chain, so that all are connected, and others."""
    chance = [tuple(sorted(rng.choice(len(NAMES), 2, replace=False).tolist())) for _ in range(2 * len(NAMES))]
    return sorted({*zip(range(len(NAMES) - 1), range(1, len(NAMES)), strict=True), *chance})


@pytest.mark.parametrize("draws", [0.0, 0.3, 0.7])
def test_intervals_of_games_of_two(draws) -> None:
    """``draws`` is their share between equals."""
    counts = []
    for truth, rng in leagues(600, seed=1):
        pairs = []
        for a, b in met(rng):
            score = expected_score(truth[a] - truth[b])
            drawn = draws * min(score, 1 - score)
            won, tied, lost = rng.multinomial(60, [score - drawn / 2, drawn, 1 - score - drawn / 2])
            pairs.append(PairTotals.of_games(NAMES[a], NAMES[b], won, tied, lost))
        counts.append(held(fit_bradley_terry(pairs), truth))
    covers(counts)


def test_intervals_of_openings_played_from_both_sides() -> None:
    """The opening decides two games in three, half of these for whoever begins: pairs that are mostly split."""
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


def placed(strengths: np.ndarray, rng: np.random.Generator, ties: float) -> np.ndarray:
    """Draw the outcomes of games [G, P] after Plackett and Luce; ``ties`` is the chance that two neighbours may tie.

    They tie so that either order was as likely to be tied, as a draw between two takes as much from the stronger
    one's wins as from the weaker one's: then the places that are left have the expectation of the strict ones.
    """
    games, players = strengths.shape
    order = np.argsort(-(strengths + rng.gumbel(size=strengths.shape)), axis=1)
    outcomes, rows = np.empty(strengths.shape), np.arange(games)
    np.put_along_axis(outcomes, order, -np.arange(players, dtype=float)[None, :], axis=1)
    ahead = rng.integers(players - 1, size=games)
    swapped = order.copy()
    swapped[rows, ahead], swapped[rows, ahead + 1] = order[rows, ahead + 1], order[rows, ahead]
    before, after = (log_chance(np.take_along_axis(strengths, places, axis=1)) for places in (order, swapped))
    tied = (rng.random(games) < ties) & (np.log(rng.random(games)) < after - before)
    outcomes[rows[tied], order[rows, ahead + 1][tied]] = outcomes[rows[tied], order[rows, ahead][tied]]
    return outcomes


def log_chance(ordered: np.ndarray) -> np.ndarray:
    """Return the logarithm of the chance that seats come in the order in which their strengths [G, P] are given."""
    return ordered.sum(axis=1) - np.log(np.cumsum(np.exp(ordered[:, ::-1]), axis=1)).sum(axis=1)


def league_of(seats: np.ndarray, truth: np.ndarray, rng: np.random.Generator, ties: float) -> tuple[int, int]:
    """Play a league whose agents sit like this [G, P], rate it, and count as ``held`` does."""
    outcomes = placed(truth[seats] * PER_ELO, rng, ties)
    games = [
        PlayedGame(tuple(NAMES[seat] for seat in sitting), tuple(outcome))
        for sitting, outcome in zip(seats.tolist(), outcomes.tolist(), strict=True)
    ]
    return held(fit_plackett_luce(games), truth)


@pytest.mark.parametrize("players", range(2, 8))
@pytest.mark.parametrize("ties", [0.0, 0.8])
def test_intervals_of_games_of_many(players, ties) -> None:
    counts = []
    for truth, rng in leagues(400, seed=10 + players):
        seats = rng.random((900 // players, len(NAMES))).argsort(axis=1)[:, :players]
        counts.append(league_of(seats, truth, rng, ties))
    covers(counts)


def test_intervals_of_a_hero_and_two_opponents_cloned_into_six_seats() -> None:
    counts = []
    for truth, rng in leagues(400, seed=30):
        chosen = rng.random((200, len(NAMES))).argsort(axis=1)
        counts.append(league_of(chosen[:, [0, 1, 1, 1, 2, 2, 2]], truth, rng, 0.0))
    covers(counts)


def test_the_error_of_a_difference_is_not_that_of_two_marginals() -> None:
    """Two that met each other far from the anchor: their difference is known well, where they are is not."""
    far = PairTotals.of_games("random", "agent a", 2, 0, 98)
    ratings = fit_bradley_terry([far, PairTotals.of_games("agent a", "agent b", 2000, 0, 2000)])
    a, b = ratings.rating("agent a"), ratings.rating("agent b")
    assert ratings.difference("agent a", "agent b").stderr < 7 < np.hypot(a.stderr, b.stderr) / 10
