"""Rulings of Shogi's rules library on doubtful points."""

from collections.abc import Sequence

import numpy as np
import pyspiel
import pytest

from app.config import GameConfig
from app.games.catalogue import openspiel_rules
from app.games.openspiel import OpenSpielTable

SHOGI = pyspiel.load_game("shogi")


def moved(moves: Sequence[str], times: int, sfen: str | None = None) -> pyspiel.State:
    """Return the state after repeating a cycle of moves."""
    state = SHOGI.new_initial_state(sfen) if sfen else SHOGI.new_initial_state()
    for move in list(moves) * times:
        state.apply_action(state.string_to_action(move))
    return state


def test_fourfold_repetition_of_the_first_position_is_a_draw() -> None:
    there_and_back = ("2h3h", "8b7b", "3h2h", "7b8b")
    assert not moved(there_and_back, times=2).is_terminal(), "the third time"
    assert moved(there_and_back, times=3).returns() == [0, 0]
    state = SHOGI.new_initial_state("8k/9/6NG1/9/9/9/9/9/4K4 w - 1")
    assert (state.legal_actions(), state.returns()) == ([], [1, -1]), "who cannot move has lost"


@pytest.mark.parametrize(
    ("sfen", "checks", "returns"),
    [
        ("4k4/9/9/9/5R3/9/9/9/K8 b - 1", ("4e5e", "5a4a", "5e4e", "4a5a"), [-1, 1]),
        ("k8/9/9/9/5r3/9/9/9/4K4 w - 1", ("4e5e", "5i4i", "5e4e", "4i5i"), [1, -1]),
    ],
)
def test_who_gives_perpetual_check_has_lost(sfen: str, checks: Sequence[str], returns: list[float]) -> None:
    assert moved(checks, times=3, sfen=sfen).returns() == returns


def test_a_game_at_the_limit_of_moves_is_cut_off_and_no_draw() -> None:
    config = GameConfig(key="foreign_2p", game="shogi", players=2)
    table, slot = OpenSpielTable(openspiel_rules(config), 1, max_moves=6), np.array([0])
    table.reset(slot, [0])
    for _ in range(6):
        _, mask = table.observe(slot)
        table.step(slot, mask.argmax(axis=1).astype(np.int32))
    assert table.truncated().all()
