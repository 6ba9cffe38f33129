"""Properties of every configuration's game, played at random."""

import numpy as np
import pyspiel
import pytest
from board_games import at_random
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.app.config import GAMES, PROFILES, GameConfig
from flyball.app.games import open_table
from flyball.app.games.game_check import check_game

SHORTER = {"shogi_2p": 120}
"""Move limits of games that are long at random."""

CONFIGS = pytest.mark.parametrize(
    "config",
    [GAMES[key].replace(max_moves=SHORTER.get(key, GAMES[key].max_moves)) for key in PROFILES["full"]],
    ids=PROFILES["full"],
)
SEEDS = st.integers(0, 2**62)


@CONFIGS
def test_check_of_a_game_finds_nothing(config: GameConfig) -> None:
    """Check legality, seeds, perspective, outcomes, truncation and symmetries."""

    @settings(max_examples=3)
    @given(SEEDS)
    def check(seed: int) -> None:
        assert check_game(config, games=3, seed=seed) == []

    check()


@pytest.mark.parametrize("key", ["hearts_4p", "oh_hell_3p", "maedn_4p"])
def test_another_seed_gives_other_chance(key: str) -> None:
    table = open_table(GAMES[key], 2)
    table.reset(np.arange(2), [1, 2])
    assert table.history(0) != table.history(1)


@pytest.mark.parametrize("key", ["hearts_4p", "oh_hell_3p", "maedn_4p"])
def test_chance_declared_uniform_is_uniform(key: str) -> None:
    config = GAMES[key]
    table = open_table(config, 1)
    for _ in at_random(table, 1, seed=11):
        pass
    state = pyspiel.load_game(config.game).new_initial_state()
    for action in table.history(0):
        if state.is_chance_node():
            outcomes = state.chance_outcomes()
            assert [outcome for outcome, _ in outcomes] == state.legal_actions()
            assert {round(p * len(outcomes), 9) for _, p in outcomes} == {1.0}
        state.apply_action(action)
