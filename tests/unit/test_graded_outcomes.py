"""Strength in games with graded outcomes, against exact expected outcomes."""

import sys
from collections.abc import Callable
from itertools import combinations
from types import ModuleType

import numpy as np
import pyspiel
import pytest
from driving import match
from open_spiel.python.policy import TabularPolicy, python_policy_to_pyspiel_policy

from flyball.app.config import GameConfig
from flyball.app.controllers.lifecycle import Candidate
from flyball.app.controllers.watchdog import Games, Level
from flyball.app.core.statistics import GradedScores, Rate
from flyball.app.events import MatchResult
from flyball.app.games import Game
from flyball.app.league.pool import rate
from flyball.app.league.totals import PRIOR_VARIANCE, PairTotals, pair_totals
from flyball.app.play.match_statistics import MatchStatistics, match_statistics
from flyball.app.play.matches import MatchPlan, play_match

MODEL = "a" * 64


class Gamble(Game):
    """Each seat decides once: 0 is safe; 1 wins a chip in 8 of 10 cases, and otherwise loses 10."""

    version, players, actions, observation_size, outcome_scale = 1, 2, 2, 1, 11

    def reset(self, rng):
        self.luck, self.chips = [rng.random(), rng.random()], []

    def seat(self):
        return len(self.chips) if len(self.chips) < 2 else None

    def legal(self):
        return [0, 1]

    def play(self, action):
        self.chips.append(0 if action == 0 else 1 if self.luck[len(self.chips)] < 0.8 else -10)

    def observe(self, seat):
        return [1.0]

    def returns(self):
        return (self.chips[0] - self.chips[1], self.chips[1] - self.chips[0])


@pytest.fixture(autouse=True)
def gamble_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("gamble")
    Gamble.__module__ = "gamble"
    module.Gamble = Gamble
    monkeypatch.setitem(sys.modules, "gamble", module)


class Weighted:
    """Chooses by fixed weights of the actions, whatever it sees."""

    def __init__(self, *weights: float) -> None:
        self._log = np.log(np.maximum(weights, 1e-30), dtype=np.float32)

    def forward(self, obs, mask, temperature=1.0):
        logits = np.where(mask, self._log, -np.inf)
        return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True), np.zeros(len(mask), dtype=np.float32)


def poker(name: str) -> Callable[..., float]:
    """Return a function of two players' weights: the first one's exact mean outcome over both seats."""
    game = pyspiel.load_game(name)
    tables = TabularPolicy(game)

    def policy(weights):
        weighted = tables.legal_actions_mask * np.array(weights)
        tables.action_probability_array = weighted / weighted.sum(axis=1, keepdims=True)
        return python_policy_to_pyspiel_policy(tables)

    def expected(first, second):
        one, other, start = policy(first), policy(second), game.new_initial_state()
        first_seat, second_seat = (
            pyspiel.expected_returns(start, both, depth_limit=-1, use_infostate_get_policy=True)
            for both in ([one, other], [other, one])
        )
        return (first_seat[0] + second_seat[1]) / 2

    return expected


def gamble(first, second):
    return -1.2 * (first[1] - second[1])


# configuration, six players' weights, and the exact outcome of a pair in the game's own units
GAMES = {
    "kuhn": (
        GameConfig(key="kuhn_2p", game="kuhn_poker", players=2),
        [(1 - bet, bet) for bet in (0.05, 0.15, 0.3, 0.5, 0.75, 0.95)],
        poker("kuhn_poker"),
    ),
    "leduc": (
        GameConfig(key="leduc_2p", game="leduc_poker", players=2),
        [(0.02, 0.9, 0.08), (0.3, 0.5, 0.2), (0.05, 0.45, 0.5), (1, 1, 1), (0.6, 0.3, 0.1), (0.01, 0.14, 0.85)],
        poker("leduc_poker"),
    ),
    "gamble": (
        GameConfig(key="gamble_2p", game="gamble:Gamble", players=2),
        [(1 - bold, bold) for bold in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)],
        gamble,
    ),
}


def played(config: GameConfig, first, second, games: int, seed: int) -> MatchStatistics:
    plan = MatchPlan(games=games, seed=seed, temperature=1.0)
    return match_statistics(play_match(config, Weighted(*first), Weighted(*second), plan), 2)


@pytest.mark.parametrize("name", GAMES)
def test_ratings_order_players_by_expected_outcome(name: str) -> None:
    config, players, expected = GAMES[name]
    models = [f"{number:064x}" for number in range(len(players))]
    pairs, outcomes = list[PairTotals](), np.zeros(len(players))
    for one, other in combinations(range(len(players)), 2):
        match = played(config, players[one], players[other], 2000, seed=1)
        pair = pair_totals(models[one], models[other], match)
        assert pair is not None
        pairs.append(pair)
        exact = expected(players[one], players[other])
        outcomes[[one, other]] += exact, -exact
    ratings = rate(pairs).comparable()
    assert np.argsort([ratings[model].elo for model in models]).tolist() == np.argsort(outcomes).tolist()


@pytest.mark.parametrize("name", GAMES)
def test_intervals_of_mean_outcomes_cover_the_exact_value(name: str) -> None:
    config, players, expected = GAMES[name]
    exact, covered, repetitions, games = expected(players[1], players[3]), 0, 400, 50
    whole = play_match(config, Weighted(*players[1]), Weighted(*players[3]), MatchPlan(repetitions * games, 7, 1.0))
    for first in range(0, repetitions * games, games):
        part = type(whole)(**{column: values[first : first + games] for column, values in whole})
        outcome = match_statistics(part, 2).outcome
        assert outcome is not None
        covered += outcome.lower <= exact <= outcome.upper
    assert 0.93 <= covered / repetitions <= 0.97


def graded(*scores: float, distinct_games: int | None = None) -> MatchResult:
    """Return a match of two players with these scores of rotations."""
    moments = GradedScores(
        players=2, rotations=len(scores), total=sum(scores), squares=sum(score**2 for score in scores)
    )
    games = 2 * len(scores)
    return match(0.0, games).replace(
        score=Rate.of(2 * sum(scores), games), rotations=(), graded=moments, distinct_games=distinct_games or games
    )


def test_gate_adds_up_graded_rounds_and_counts_repeats_once() -> None:
    once = Candidate(model=MODEL, parent=None, step=1).after(graded(0.4, 0.8), 2)
    assert (once.games, once.graded) == (4, graded(0.4, 0.8).graded)
    twice = once.after(graded(0.9, 0.5), 2)
    assert (twice.games, twice.graded.rotations, twice.graded.total) == (8, 4, pytest.approx(2.6))
    assert twice.after(graded(0.9, 0.9, distinct_games=2), 2).graded == twice.graded
    repeated = Candidate(model=MODEL, parent=None, step=1).after(graded(0.9, 0.9, distinct_games=2), 2)
    assert repeated.graded == graded(0.9).graded


def test_graded_games_count_as_decisive_games_of_equal_variance() -> None:
    """Scores of 0.6 and 0.4 vary less than wins and losses."""
    games = graded(*(0.6, 0.4) * 100)
    variance = 400 * 2 * 0.1**2
    dispersion = (variance + PRIOR_VARIANCE) / (400 * 0.25 + PRIOR_VARIANCE)
    assert Games.of(games) == (round(400 / dispersion), pytest.approx(0.5 * round(400 / dispersion)))


def test_level_of_good_models_is_never_below_the_opponents() -> None:
    assert Level.measured(None, Games(100, 40.0)).elo == 0
    assert Level.measured(None, Games(100, 60.0)).elo == Games(100, 60.0).elo > 0
