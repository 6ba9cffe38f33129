"""Othello by our own rules: moves, flips, passes and ends."""

import numpy as np
import pytest
from board_games import SLOT, after, at_random

from flyball.app.games import FINISHED
from flyball.app.games.board_table import BoardTable
from flyball.app.games.othello import CELLS, OTHELLO, PASS, SIDE, flips, legal

DIRECTIONS = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if (down, right) != (0, 0)]
FIRST, SECOND = sum(1 << cell for cell in (28, 35)), sum(1 << cell for cell in (27, 36))
COUNTS = [4, 12, 56, 244, 1396, 8200, 55092]
"""Published perft counts: games of 1, 2, … moves."""
WIPED_OUT = [44, 29, 20, 45, 38, 43, 52, 37, 34]
"""e6 f4 e3 f6 g5 d6 e7 f5 c5: one of the shortest games."""
FIRST_PASSES = [44, 45, 19, 52, 60, 59, 46, 61]
SECOND_PASSES = [44, 29, 19, 43, 37, 11, 10, 45, 3, 1, 17]


def cells_of(cells: int) -> list[int]:
    return [cell for cell in range(CELLS) if cells >> cell & 1]


def set_of(cells) -> int:
    return sum(1 << int(cell) for cell in cells)


def places(mine: int, theirs: int) -> list[int]:
    return cells_of(legal(np.uint64(mine), np.uint64(theirs)))


def turned(mine: int, theirs: int, cell: int) -> list[int]:
    return cells_of(flips(np.uint64(mine), np.uint64(theirs), cell))


def run_of(board, cell: int, down: int, right: int) -> list[int]:
    """Return the opponent's discs that a move flips in one direction."""
    row, column, run = cell // SIDE + down, cell % SIDE + right, []
    while 0 <= row < SIDE and 0 <= column < SIDE and board[row, column] == -1:
        run.append(row * SIDE + column)
        row, column = row + down, column + right
    mine = 0 <= row < SIDE and 0 <= column < SIDE and board[row, column] == 1
    return run if mine else []


def games(mine: int, theirs: int, moves: int) -> int:
    """Count the move sequences of a given length, at most 7. No player has to pass within the first 7 moves."""
    begun = places(mine, theirs)
    if moves == 1:
        return len(begun)
    total = 0
    for cell in begun:
        won = set_of(turned(mine, theirs, cell))
        total += games(theirs & ~won, mine | won | 1 << cell, moves - 1)
    return total


@pytest.fixture(scope="module")
def played() -> BoardTable:
    table = BoardTable(OTHELLO, 3000)
    list(at_random(table, 3000))
    return table


@pytest.mark.parametrize(("moves", "expected"), list(enumerate(COUNTS, 1)))
def test_there_are_as_many_games_as_others_counted(moves: int, expected: int) -> None:
    assert games(FIRST, SECOND, moves) == expected


def test_legal_moves_and_what_they_turn_are_found_as_by_walking() -> None:
    rng, moves = np.random.default_rng(0), 0
    for density in np.linspace(0.2, 1, 150):
        board = rng.choice([0, 1, -1], size=(SIDE, SIDE), p=[1 - density, density / 2, density / 2])
        board[rng.integers(SIDE)] = -1  # runs from edge to edge
        mine, theirs = (set_of(np.flatnonzero(board.ravel() == side)) for side in (1, -1))
        expected = {
            cell: sorted(other for direction in DIRECTIONS for other in run_of(board, cell, *direction))
            for cell in np.flatnonzero(board.ravel() == 0).tolist()
        }
        assert places(mine, theirs) == [cell for cell, others in expected.items() if others]
        assert {cell: turned(mine, theirs, cell) for cell in expected} == expected
        moves += sum(map(bool, expected.values()))
    assert moves > 1000


@pytest.mark.parametrize("limit", [None, len(WIPED_OUT)])
def test_a_game_is_over_where_the_loser_has_no_discs(limit: int | None) -> None:
    table = after(BoardTable(OTHELLO, 1, limit), *WIPED_OUT)
    assert table.seats()[0] == FINISHED
    assert table.returns().tolist() == [[1, -1]]
    assert not table.truncated().any()
    seen = table.view(SLOT, np.array([1], dtype=np.int8)).reshape(3, CELLS)
    assert seen.sum(axis=1).tolist() == [0, 13, 51]


def test_random_games_reach_passes_draws_and_boards_not_full(played: BoardTable) -> None:
    """Both seats pass in some games."""
    passes = [k % 2 for slot in range(3000) for k, move in enumerate(played.history(slot)) if move == PASS]
    assert min(passes.count(0), passes.count(1)) > 100
    mine, theirs, empty = played.view(np.arange(3000), np.zeros(3000, dtype=np.int8)).reshape(3000, 3, CELLS).sum(2).T
    stuck = (empty > 0) & (mine > 0) & (theirs > 0)
    assert stuck.any()
    np.testing.assert_array_equal(played.returns()[:, 0], np.sign(mine.astype(int) - theirs))
    assert (mine == theirs).any()
