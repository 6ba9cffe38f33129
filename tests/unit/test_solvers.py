"""Solvers: published positions, brute force, and tables that play the same games."""

from functools import cache

import numpy as np
import pytest

from flyball.app.config import GAMES
from flyball.app.core import ConfigKey
from flyball.app.games import FINISHED, open_table
from flyball.app.games.connect_four_solver import ConnectFourSolver
from flyball.app.games.solver import NoSolver, solver_for
from flyball.app.games.tic_tac_toe_solver import TicTacToeSolver

CONNECT_FOUR, TIC_TAC_TOE = GAMES[ConfigKey("connect_four_2p")], GAMES[ConfigKey("tic_tac_toe_2p")]
PUBLISHED = {
    "2252576253462244111563365343671351441": -1,
    "652331172222457134742634464673135775": 0,
    "255714773527756331213332562266761651": 2,
    "661261745732573553534524211462": -1,
    "4654424754216675341363625627233157": 0,
    "23163416124767223154467471272416755633": 0,
    "52677675164321472411331752454": 0,
    "5554224333234511764415115": 4,
    "62523333557451566631264": -6,
    "33112517243762366323": 7,
    "111664475267424": -9,
    "66713424111135136347554532": -2,
    "716556436314714221112544": 3,
    "4374276463254716664643": -6,
    "43745416472735": -13,
    "1562527227511": 13,
    "74642572132": 15,
}
"""Positions of P. Pons' benchmark (blog.gamesolver.org, part 2): columns from 1, and scores, positive for a win."""


def at_random(config, lengths, games, seed):
    """Yield the histories of random games after some numbers of moves."""
    rng, table = np.random.default_rng(seed), open_table(config, games)
    slots = np.arange(games)
    table.reset(slots, [0] * games)
    for length in range(1, max(lengths) + 1):
        live = slots[table.seats() != FINISHED]
        _, mask = table.observe(live)
        table.step(live, np.array([rng.choice(np.flatnonzero(row)) for row in mask], dtype=np.int32))
        for slot in slots[table.seats() != FINISHED].tolist():
            if length in lengths and len(history := table.history(slot)) == length:
                yield history


@cache
def brute_force(board: tuple[str, ...], mover: str) -> int:
    """Return the mover's value by full search without pruning."""
    other = "xo"[mover == "x"]
    if connected(board, other):
        return -1
    moves = [column for column in range(7) if len(board[column]) < 6]
    return max((-brute_force(dropped(board, column, mover), other) for column in moves), default=0)


def dropped(board, column, mover):
    return (*board[:column], board[column] + mover, *board[column + 1 :])


def connected(board, side) -> bool:
    def at(column, row):
        return 0 <= column < 7 and 0 <= row < len(board[column]) and board[column][row] == side

    return any(
        all(at(column + k * right, row + k * up) for k in range(4))
        for column in range(7)
        for row in range(6)
        for right, up in ((0, 1), (1, 0), (1, 1), (1, -1))
    )


@pytest.mark.parametrize(("moves", "score"), PUBLISHED.items())
def test_connect_four_solver_agrees_with_published_scores(moves: str, score: int) -> None:
    values = ConnectFourSolver().values([int(column) - 1 for column in moves])
    assert max(values.values()) == np.sign(score)


def test_connect_four_solver_agrees_with_brute_force() -> None:
    solver, seen = ConnectFourSolver(), set()
    for history in at_random(CONNECT_FOUR, range(33, 41), 600, seed=1):
        board = ("",) * 7
        for ply, column in enumerate(history):
            board = dropped(board, column, "xo"[ply % 2])
        mover, other = "xo"[len(history) % 2], "ox"[len(history) % 2]
        legal = [column for column in range(7) if len(board[column]) < 6]
        expected = {column: -brute_force(dropped(board, column, mover), other) for column in legal}
        assert solver.values(history) == expected, history
        best = max(expected.values())
        assert solver.optimal(history) == {column for column, value in expected.items() if value == best}
        quiet = not any(connected(dropped(board, column, side), side) for column in legal for side in "xo")
        assert solver.quiet(history) == quiet, history
        seen |= {(quiet, value) for value in expected.values()}
    assert seen == {(quiet, value) for quiet in (True, False) for value in (-1, 0, 1)}


def test_connect_four_values_agree_with_those_after_each_move() -> None:
    solver = ConnectFourSolver()
    for history in at_random(CONNECT_FOUR, [15, 16, 20], 30, seed=2):
        values = solver.values(history)
        table = open_table(CONNECT_FOUR, 1)
        for column, value in values.items():
            table.reset(np.array([0]), [0])
            for move in [*history, column]:
                if table.seats()[0] != FINISHED:
                    table.step(np.array([0]), np.array([move], dtype=np.int32))
            if table.seats()[0] != FINISHED:
                assert value == -max(solver.values([*history, column]).values())
            else:
                assert value == table.returns()[0, len(history) % 2]
        mirrored = solver.values([6 - column for column in history])
        assert mirrored == {6 - column: value for column, value in values.items()}


def test_tic_tac_toe_is_solved_and_solvers_are_shared() -> None:
    solver = TicTacToeSolver()
    assert set(solver.values([]).values()) == {0}, "every first move draws"
    assert solver.optimal([0]) == {4}, "a corner is answered by the centre alone"
    assert solver.values([0, 4, 1, 8])[2] == 1
    assert solver.quiet([0, 4])
    assert not solver.quiet([0, 4, 1])
    for config in (CONNECT_FOUR, CONNECT_FOUR.replace(engine="openspiel"), TIC_TAC_TOE):
        assert solver_for(config) is solver_for(config)


@pytest.mark.parametrize(
    "changes",
    [
        {"game": "connect_four(rows=8,columns=9)", "engine": "openspiel"},
        {"game": "connect_four(x_in_row=3)", "engine": "openspiel"},
        {"game": "hex(board_size=7)", "engine": "openspiel"},
        {"max_moves": 30},
    ],
)
def test_other_games_and_options_have_no_solver(changes: dict[str, object]) -> None:
    with pytest.raises(NoSolver, match="No solver knows"):
        solver_for(CONNECT_FOUR.replace(**changes))
