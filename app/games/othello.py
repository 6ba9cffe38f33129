"""Othello: its codec and our own rules.

A set of discs is 64 bits: the cell in row r, column c is bit 8 r + c. A step in any of the eight
directions rotates the bits. Bits that wrap round an edge land on border cells. No disc there can lie between two others
in that direction, so ``_BETWEEN`` masks these cells.
"""

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import inlined, kernel
from flyball.app.games.board_table import SEATS, BoardRules, bit_count, cut_off, finish, game_type, write_move
from flyball.app.games.codec import Codec, gather, identical, planes, square_symmetries
from flyball.app.games.table import FINISHED, Indices, Seats

SIDE = 8
CELLS = SIDE * SIDE
PASS = CELLS


def othello() -> Codec:
    """Encode planes of own, opponent's and empty cells; the last action passes."""
    views = np.tile(planes((1, 2, 0), np.arange(CELLS)), (SEATS, 1))
    keeping_the_start = ("half_turn", "transpose", "anti_transpose")
    symmetries = square_symmetries(keeping_the_start, SIDE, 3, passing=True)
    return Codec(3 * CELLS, gather(views), identical(SEATS, CELLS + 1), symmetries, planes=(3, SIDE, SIDE))


_CODEC = othello()
_THEIRS, _EMPTY = CELLS, 2 * CELLS  # first features of the opponent's and empty planes
_LONGEST = 2 * (CELLS - 4)  # moves: 60 discs, with at most one pass before each
_LONGEST_RUN = SIDE - 2  # most discs between two others

_ONE, _NONE = np.uint64(1), np.uint64(0)
_INNER_COLUMNS, _INNER_ROWS = np.uint64(0x7E7E7E7E7E7E7E7E), np.uint64(0x00FFFFFFFFFFFF00)
_INNER = _INNER_COLUMNS & _INNER_ROWS
_STEPS = np.array([1, 7, 8, 9, 55, 56, 57, 63], dtype=np.uint64)  # bits to rotate left; the last four step backwards
_BETWEEN = np.array([_INNER_COLUMNS, _INNER, _INNER_ROWS, _INNER, _INNER, _INNER_ROWS, _INNER, _INNER_COLUMNS])
"""Cells on which a disc can lie between two others, by direction."""

_DISCS = np.array([[28, 35], [27, 36]])  # of the first position, by seat
_BEGUN = np.zeros((), dtype=game_type(_CODEC, _LONGEST, ("discs", np.uint64, SEATS)))
_BEGUN["discs"] = (_ONE << _DISCS.astype(np.uint64)).sum(axis=1)
_BEGUN["open"][[19, 26, 37, 44]] = 1


@kernel
def _play(games: NDArray[np.void], slots: Indices, actions: Indices, limit: int) -> None:
    """See ``board_table.Play``."""
    for k in range(len(slots)):
        game, action = games[slots[k]], int(actions[k])
        while action >= 0:
            moves = _turn(game, action, limit)
            action = _only_action(game, moves)
        if game["mover"] != FINISHED:  # passes are never open, because they are forced
            for cell in range(CELLS):
                game["open"][cell] = moves >> np.uint64(cell) & _ONE


@inlined
def _turn(game: np.void, action: int, limit: int) -> np.uint64:
    """Play the mover's disc or pass.

    The game ends if neither seat can place a disc, or at the limit. Return the cells on which the other seat may place
    a disc.
    """
    mover, played = int(game["mover"]), write_move(game, action)
    other = 1 - mover
    mine, theirs = game["discs"][mover], game["discs"][other]
    if action != PASS:
        turned = flips(mine, theirs, action)
        mine, theirs = mine | turned | _ONE << np.uint64(action), theirs & ~turned
        game["discs"][mover], game["discs"][other] = mine, theirs
    moves = legal(theirs, mine)
    game["mover"] = other
    if moves == _NONE and legal(mine, theirs) == _NONE:
        finish(game, bit_count(game["discs"][0]) - bit_count(game["discs"][1]))
    elif played == limit:
        cut_off(game)
    return moves


@inlined
def _only_action(game: np.void, moves: np.uint64) -> int:
    """Return the mover's only action, -1 for several or a finished game."""
    if game["mover"] == FINISHED or moves & moves - _ONE:
        return -1
    return bit_count(moves - _ONE) if moves else PASS


@kernel
def _show(games: NDArray[np.void], slots: Indices, seats: Seats, views: NDArray[np.uint8]) -> None:
    """See ``board_table.Show``."""
    for k in range(len(slots)):
        game, seat, view = games[slots[k]], seats[k], views[k]
        mine, theirs = game["discs"][seat], game["discs"][1 - seat]
        for cell in range(CELLS):
            own, others = mine >> np.uint64(cell) & _ONE, theirs >> np.uint64(cell) & _ONE
            view[cell] = own
            view[_THEIRS + cell] = others
            view[_EMPTY + cell] = _ONE - own - others


@kernel
def legal(mine: np.uint64, theirs: np.uint64) -> np.uint64:
    """Return my legal cells: the empty ends of runs of the opponent's discs that begin beside mine."""
    moves = _NONE
    for k in range(len(_STEPS)):
        moves |= _rotate(_run(mine, theirs & _BETWEEN[k], _STEPS[k]), _STEPS[k])
    return moves & ~(mine | theirs)


@kernel
def flips(mine: np.uint64, theirs: np.uint64, cell: int) -> np.uint64:
    """Return the opponent's discs that turn if I play ``cell``: all runs from it to another disc of mine."""
    turned = _NONE
    for k in range(len(_STEPS)):
        run = _run(_ONE << np.uint64(cell), theirs & _BETWEEN[k], _STEPS[k])
        turned |= run if _rotate(run, _STEPS[k]) & mine else _NONE
    return turned


@inlined
def _run(begin: np.uint64, between: np.uint64, step: np.uint64) -> np.uint64:
    """Return one direction's unbroken runs of ``between`` that begin beside ``begin``."""
    run = between & _rotate(begin, step)
    for _ in range(_LONGEST_RUN - 1):
        run |= between & _rotate(run, step)
    return run


@inlined
def _rotate(cells: np.uint64, step: np.uint64) -> np.uint64:
    return cells << step | cells >> np.uint64(CELLS) - step


OTHELLO = BoardRules("othello", version=1, codec=_CODEC, begun=_BEGUN, play=_play, show=_show)
"""Actions are the 64 cells, then a pass."""
