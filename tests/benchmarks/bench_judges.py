"""Judges: the solver by number of stones, and Shogi searches by playouts.

Searches are ours and OpenSpiel's. Run with ``pytest tests/benchmarks/bench_judges.py -m benchmark -s``; ``-k solver``
takes minutes, ``-k match`` half an hour. Times are of the processor. The ratio is asserted, not the figures.
"""

from random import Random
from time import process_time

import numpy as np
import pyspiel
import pytest

from flyball.app.games.connect_four_solver import ConnectFourSolver
from flyball.app.games.shogi.parity import openspiel_actions
from flyball.app.games.shogi.playouts import best_move
from flyball.app.games.shogi.replay import Replay
from flyball.app.games.shogi.variant import SHOGI

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(7200)]
PLAYOUTS, GAMES, OPENING, LIMIT = 10, 40, 4, 300
EXPLORATION, MEMORY_MB = 2.0, 1000


def test_solver_by_stones() -> None:
    """Solve random columns with one solver, whose table fills up."""
    solver, rng = ConnectFourSolver(), np.random.default_rng(7)
    solver.optimal([3] * 6 + [2] * 6 + [1] * 6)
    for stones, positions in ((8, 20), (6, 6), (5, 3), (4, 3), (2, 1)):
        seconds = []
        for _ in range(positions):
            history = rng.integers(0, 7, stones).tolist()
            began = process_time()
            solver.optimal(history)
            seconds.append(process_time() - began)
        print(f"{stones} stones: {', '.join(f'{one:.1f}' for one in seconds)} s")  # noqa: T201


def test_match_by_playouts_with_openspiel() -> None:
    """Play by our rules with equal playouts, two games with each opening. OpenSpiel's rules may end a game first."""
    theirs, numbers, rng = pyspiel.load_game("shogi"), openspiel_actions(), Random(2)
    points, draws, ended, seconds, moves = 0.0, 0, 0, np.zeros(2), np.zeros(2)
    opening = list[float]()
    best_move(Replay(SHOGI), 1, EXPLORATION, 0)  # compiles
    for number in range(GAMES):
        opening = [rng.random() for _ in range(OPENING)] if number % 2 == 0 else opening
        game, state = Replay(SHOGI, limit=LIMIT), theirs.new_initial_state()
        while not game.over and not state.is_terminal():
            mover, seed = int(game.seat != number % 2), rng.randrange(2**31 - 1)
            began = process_time()
            if len(game.history) < OPENING:
                action = int(game.legal[int(opening[len(game.history)] * len(game.legal))])
            else:
                if mover == 0:
                    action = best_move(game, PLAYOUTS, EXPLORATION, seed)
                else:
                    rollouts = pyspiel.RandomRolloutEvaluator(1, seed)
                    bot = pyspiel.MCTSBot(theirs, rollouts, EXPLORATION, PLAYOUTS, MEMORY_MB, True, seed, False)
                    action = int(np.flatnonzero(numbers[game.seat] == bot.step(state))[0])
                seconds[mover] += process_time() - began
                moves[mover] += 1
            state.apply_action(int(numbers[game.seat, action]))
            game.play(action)
        ended += not game.over
        draws += game.returns[0] == 0
        points += (1 + game.returns[number % 2]) / 2
    ours, other = 1000 * seconds / moves / PLAYOUTS
    print(  # noqa: T201
        f"{points} points of {GAMES}, {draws} games drawn or cut off, {ended} of them ended by OpenSpiel; "
        f"{ours:.2f} ms a playout, OpenSpiel {other:.2f}"
    )
    assert ours < other
