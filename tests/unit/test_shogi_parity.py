"""The quality monitor's check of Shogi: faults and explained OpenSpiel rulings."""

from dataclasses import replace

import numpy as np
import pyspiel
import pytest
from board_games import SLOT, recorded

from flyball.app.config import GAMES
from flyball.app.games import GameRecord, checker_for, open_table
from flyball.app.games.shogi.parity import compare
from flyball.app.games.shogi.replay import Replay
from flyball.app.games.shogi.variant import SHOGI

OPENSPIEL = pyspiel.load_game("shogi")
CONFIG = GAMES["shogi_2p"].replace(max_moves=80)
CHECKS = ("4e5e", "5a4a", "5e4e", "4a3a", "4e3e", "3a4b", "3e4e", "4b5a")
QUIET = ("4e3e", "5a4a", "3e4e", "4a5a")
ROOK = "4k4/9/9/9/5R3/9/9/9/K8 b - 1"


def actions(sfen: str, moves: tuple[str, ...]) -> list[int]:
    game = Replay(SHOGI, sfen)
    for text in moves:
        game.play(game.moves[text])
    return game.history


@pytest.mark.parametrize(
    ("sfen", "moves", "ruling"),
    [
        (SHOGI.sfen, ("7g7f", "3c3d"), "same"),
        (SHOGI.sfen, ("2h3h", "8b7b", "3h2h", "7b8b") * 3, "same"),
        (ROOK, CHECKS * 3, "same"),
        (ROOK, QUIET + CHECKS * 2, "perpetual"),
        ("4K4/9/9/9/9/9/9/9/4k4 b - 1", (), "camp"),
        ("4K4/9/9/4k4/9/9/9/9/9 w 2R2B8P 1", (), "camp"),
        ("9/9/9/4K4/9/9/9/7+p+p/+p+p+p+p+p+p+p+pk w 2rb2l 1", (), "declaration"),
    ],
)
def test_openspiel_ending_is_explained(sfen: str, moves: tuple[str, ...], ruling: str) -> None:
    comparison = compare(OPENSPIEL, actions(sfen, moves), sfen)
    assert (comparison.ruling, comparison.fault) == (ruling, "")


class Altered:
    """OpenSpiel's game with a changed answer in its states."""

    def __init__(self, **answers) -> None:
        self.answers = answers

    def new_initial_state(self, sfen: str):
        return AlteredState(OPENSPIEL.new_initial_state(sfen), self.answers)


class AlteredState:
    def __init__(self, state, answers) -> None:
        self.state, self.answers = state, answers

    def __getattr__(self, name: str):
        asked = getattr(self.state, name)
        return lambda *arguments: self.answers[name](asked(*arguments)) if name in self.answers else asked(*arguments)


@pytest.mark.parametrize(
    ("altered", "moves", "fault"),
    [
        (Altered(legal_actions=lambda legal: legal[1:]), ("7g7f",), "move 0: only one engine allows"),
        (Altered(is_terminal=lambda _over: True), ("7g7f",), "after 0 moves the outcome is"),
        (Altered(returns=lambda _returns: [1.0, -1.0]), CHECKS * 3, "after 24 moves the outcome is"),
        (Altered(returns=lambda _returns: [0.0, 0.0]), CHECKS * 3, "after 24 moves the outcome is"),
    ],
)
def test_difference_without_a_reason_is_a_fault(altered: Altered, moves: tuple[str, ...], fault: str) -> None:
    sfen = ROOK if moves == CHECKS * 3 else SHOGI.sfen
    comparison = compare(altered, actions(sfen, moves), sfen)
    assert comparison.ruling == "unexplained"
    assert comparison.fault.startswith(fault)


def random_game(seed: int) -> GameRecord:
    """Return a random game with a row for each decision."""
    table, rng = open_table(CONFIG, 1), np.random.default_rng(seed)
    table.reset(SLOT, [seed])
    return recorded(table, lambda legal: rng.choice(np.flatnonzero(legal)), seed)


def test_sound_games_pass() -> None:
    checker = checker_for(CONFIG)
    assert [checker.failures(random_game(seed)) for seed in range(3)] == [[], [], []]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (lambda game: {"returns": np.array([1, -1], dtype=np.float32)}, "outcome"),
        (lambda game: {"truncated": False}, "recorded as finished"),
        (lambda game: {"history": [0, *game.history[1:]]}, "move 0: action 0 is not legal"),
        (lambda game: {"history": game.history[:-1]}, "the recorded game ends after 79 moves"),
        (lambda game: {"mask": ~game.mask}, "the legal mask"),
        (lambda game: {"obs": game.obs[::-1]}, "the observation"),
    ],
)
def test_altered_game_fails(changes, complaint: str) -> None:
    game = random_game(0)
    assert complaint in checker_for(CONFIG).failures(replace(game, **changes(game)))[0]
