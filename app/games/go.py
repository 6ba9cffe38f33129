"""Go: its codec and our own rules, which are OpenSpiel's.

Suicide is illegal, as is taking back at once in a ko. A stone that repeats any former position ends the game as a draw.
Otherwise two passes or the longest game end it; area and komi are counted, and all stones count as alive.

The board has a border of walls, so that every point has four neighbours. A point is its number on that board.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import inlined, kernel
from app.games.board_table import EMPTY, BoardRules, finish, forced, game_type, show_pieces, write_move
from app.games.codec import TURNS, Codec, gather, identical, planes, square_symmetries
from app.games.table import Indices, Mask, Seats, UnknownGame


def go(board_size: int = 19) -> Codec:
    """Encode planes of own, opponent's and empty cells, and ones for the second seat (komi); the last action passes."""
    cells = np.arange(board_size**2)
    views = np.stack([planes((0, 1, 2, 3), cells), planes((1, 0, 2, 3), cells)])
    actions = board_size**2 + 1
    symmetries = square_symmetries(TURNS, board_size, 4, passing=True)
    return Codec(views.shape[1], gather(views), identical(2, actions), symmetries, planes=(4, board_size, board_size))


LARGEST = 19
WALL = EMPTY + 1  # value of a point beyond the edge
_MARKS = np.random.default_rng(0).integers(2**16, size=(2, (LARGEST + 2) ** 2), dtype=np.uint16)
"""Numbers by seat and point. A position's mark is the exclusive or of its stones' numbers (Zobrist, 1970)."""


@cache
def go_rules(board_size: int = LARGEST, komi: float = 7.5, max_game_length: int = 2 * LARGEST**2) -> BoardRules:
    """Return the rules on a board of ``board_size`` x ``board_size`` points. Raises ``UnknownGame``."""
    if not 2 <= board_size <= LARGEST:
        raise UnknownGame(f"No Go on a board of size {board_size}.", hint=f"Set board_size to 2 to {LARGEST}.")
    codec, side, longest = go(board_size), board_size + 2, max(max_game_length, 2)
    begun = np.zeros(
        (),
        dtype=game_type(
            codec,
            longest,
            ("board", np.uint8, (side, side)),
            ("ko", np.uint16),  # the point that may not be taken back; 0 if there is none
            ("marks", np.uint16, longest + 1),  # of the positions so far
            ("komi", np.float32),
        ),
    )
    begun["open"][:], begun["komi"] = 1, komi
    begun["board"][:] = WALL
    begun["board"][1:-1, 1:-1] = EMPTY
    name = f"go(board_size={board_size},komi={komi},max_game_length={max_game_length})"
    return BoardRules(name, version=1, codec=codec, begun=begun, play=_play, show=_show)


@kernel
def _play(games: NDArray[np.void], slots: Indices, actions: Indices, limit: int) -> None:
    """See ``board_table.Play``."""
    size = games["board"].shape[1] ** 2
    listed, seen, weak = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.bool_), np.empty(size, dtype=np.bool_)
    for k in range(len(slots)):
        game, action = games[slots[k]], int(actions[k])
        while action >= 0:
            _turn(game, action, limit, listed, seen)
            action = -1
            if game["mover"] >= 0:
                _allow(game, listed, seen, weak)
                action = forced(game)


@inlined
def _turn(game: np.void, action: int, limit: int, listed: Indices, seen: Mask) -> None:
    """Place the mover's stone or pass; end the game if it is over or at the limit."""
    mover, played, passing = int(game["mover"]), write_move(game, action), len(game["open"]) - 1
    moves, marks, stride = game["moves"], game["marks"], game["board"].shape[0]
    board = game["board"].ravel()
    mark, repeated = marks[played - 1], False
    game["ko"] = 0
    if action != passing:
        point = _point(action, stride)
        eye = True  # of the other seat: no neighbour is empty or the mover's
        for step in (-stride, -1, 1, stride):
            eye &= board[point + step] != EMPTY and board[point + step] != mover
        taken = _place(board, stride, point, mover, listed, seen)
        mark ^= _MARKS[mover, point]
        for i in range(taken):
            mark ^= _MARKS[1 - mover, listed[i]]
        if eye and taken == 1:
            game["ko"] = listed[0]
        former = False
        for i in range(played):
            former |= marks[i] == mark
        repeated = former and _repeated(board, stride, moves[:played], marks, mark)
    marks[played] = mark
    game["mover"] = 1 - mover
    if repeated:
        finish(game, 0)
    elif (action == passing and played > 1 and moves[played - 2] == passing) or played == len(moves):
        lead = _area(board, stride) - game["komi"]
        finish(game, int(lead > 0) - int(lead < 0))
    elif played == limit:
        game["truncated"] = True
        finish(game, 0)


@inlined
def _point(action: int, stride: int) -> int:
    """Return the point that an action places a stone on."""
    side = stride - 2
    return (action // side + 1) * stride + action % side + 1


@inlined
def _place(board: NDArray[np.uint8], stride: int, point: int, mover: int, listed: Indices, seen: Mask) -> int:
    """Place a stone and take the chains that it leaves without a liberty; list the points that are empty now."""
    board[point] = mover
    seen[:] = False
    taken = 0
    for step in (-stride, -1, 1, stride):
        beside = point + step
        if board[beside] == 1 - mover and not seen[beside]:
            end = _connected(board, stride, beside, taken, listed, seen)
            free = False
            for i in range(taken, end):
                for way in (-stride, -1, 1, stride):
                    free |= board[listed[i] + way] == EMPTY
            if not free:
                for i in range(taken, end):
                    board[listed[i]] = EMPTY
                taken = end
    return taken


@inlined
def _connected(board: NDArray[np.uint8], stride: int, point: int, begin: int, listed: Indices, seen: Mask) -> int:
    """List the points connected to one, from index ``begin``; return the index of their end."""
    listed[begin], seen[point] = point, True
    end = begin + 1
    while begin < end:
        for step in (-stride, -1, 1, stride):
            beside = listed[begin] + step
            new = board[beside] == board[point] and not seen[beside]
            listed[end] = beside  # written over if it is not new, because branches that are hard to predict take longer
            seen[beside] |= new
            end += new
        begin += 1
    return end


@inlined
def _allow(game: np.void, listed: Indices, seen: Mask, weak: Mask) -> None:
    """Open the legal actions of the seat to move; ``weak`` becomes the stones whose chain has one liberty."""
    mover, ko, stride = int(game["mover"]), int(game["ko"]), game["board"].shape[0]
    board, side = game["board"].ravel(), stride - 2
    seen[:] = False
    for action in range(side * side):
        point = _point(action, stride)
        legal = False
        if board[point] == EMPTY and point != ko:
            for step in (-stride, -1, 1, stride):
                legal |= board[point + step] == EMPTY
            if not legal:
                for step in (-stride, -1, 1, stride):
                    beside = point + step
                    if board[beside] != WALL:
                        if not seen[beside]:
                            _weigh(board, stride, beside, listed, seen, weak)
                        legal |= (board[beside] == mover) != weak[beside]
        game["open"][action] = legal
    game["open"][side * side] = 1


@inlined
def _weigh(board: NDArray[np.uint8], stride: int, point: int, listed: Indices, seen: Mask, weak: Mask) -> None:
    end, liberty, several = _connected(board, stride, point, 0, listed, seen), 0, False
    for i in range(end):
        for step in (-stride, -1, 1, stride):
            beside = listed[i] + step
            empty = board[beside] == EMPTY
            several |= empty and liberty != 0 and liberty != beside
            liberty = beside if empty else liberty
    for i in range(end):
        weak[listed[i]] = not several


@kernel
def _repeated(
    board: NDArray[np.uint8], stride: int, moves: NDArray[np.uint8], marks: NDArray[np.uint16], mark: int
) -> bool:
    """Return whether a board is a former position of its game, where positions of the same mark are played again."""
    former = np.where(board == WALL, WALL, EMPTY).astype(np.uint8)
    listed, seen = np.empty(len(board), dtype=np.int64), np.empty(len(board), dtype=np.bool_)
    for played in range(len(moves)):
        if marks[played] == mark and (former == board).all():
            return True
        if moves[played] < (stride - 2) ** 2:
            _place(former, stride, _point(int(moves[played]), stride), played % 2, listed, seen)
    return False


@kernel
def _area(board: NDArray[np.uint8], stride: int) -> int:
    """Return the first seat's lead in stones and in empty points that border only its stones (Tromp-Taylor)."""
    listed, seen = np.empty(len(board), dtype=np.int64), np.zeros(len(board), dtype=np.bool_)
    lead = 0
    for point in range(len(board)):
        if board[point] < EMPTY:
            lead += 1 - 2 * int(board[point])
        elif board[point] == EMPTY and not seen[point]:
            end, borders = _connected(board, stride, point, 0, listed, seen), 0
            for i in range(end):
                for step in (-stride, -1, 1, stride):
                    if board[listed[i] + step] < EMPTY:
                        borders |= 1 << int(board[listed[i] + step])
            if borders in (1, 2):
                lead += end if borders == 1 else -end
    return lead


@kernel
def _show(games: NDArray[np.void], slots: Indices, seats: Seats, views: NDArray[np.uint8]) -> None:
    """See ``board_table.Show``."""
    for k in range(len(slots)):
        game, view = games[slots[k]], views[k]
        show_pieces(game["board"][1:-1, 1:-1], seats[k], view)
        view[3 * (len(game["open"]) - 1) :] = game["played"] % 2  # komi is given while the second seat is to move
