"""Our Shogi against OpenSpiel's: legal moves and endings of all positions."""

from collections import Counter

import pytest
from shogi_games import random_histories

from flyball.app.games.openspiel import load_game
from flyball.app.games.shogi.parity import compare


@pytest.mark.parametrize("games", [200, pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.timeout(4 * 3600)])])
def test_random_games_agree_with_openspiel(games: int) -> None:
    openspiel, rulings, positions = load_game("shogi", 2), Counter(), 0
    for history in random_histories("shogi", games, seed=1):
        comparison = compare(openspiel, history)
        assert not comparison.fault
        rulings[comparison.ruling] += 1
        positions += comparison.compared
    print(f"{games} games, {positions} positions, endings: {dict(rulings)}")  # noqa: T201
    assert rulings["same"] > 0.9 * games
    assert rulings["perpetual"] + rulings["declaration"] <= 0.01 * games
