"""The rules of Shogi as kernels on records of positions.

Positions are seen by the seat to move.

Sources: the rules of the Japan Shogi Association (https://www.shogi.or.jp) on drops, promotion and repetition, and of
the Computer Shogi Association (http://www2.computer-shogi.org) on the declaration by 27 points:

- Pieces that could never move again have to promote, and are not dropped where they could never move.
- No pawn is dropped into a file with an unpromoted pawn of the same seat (nifu), nor to give mate (uchifuzume).
- A seat without a legal move has lost, in check or not.
- At the fourth occurrence of a position (squares, hands and seat to move; the first position of a game counts), the
  game is a draw. If all moves of one seat since the first occurrence gave check, that seat has lost.
- A seat to move wins by declaration if its king is in the opponent's camp and not in check, it has ten other pieces
  there, and these and its hand make 28 points for Black, 27 for White: 5 for each rook and bishop, otherwise 1.
  Declaring is never worse than moving, so the game then ends by itself.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import kernel
from flyball.app.games.shogi.variant import (
    BASE,
    BISHOP,
    CODES,
    DIRECTIONS,
    HALF_TURN,
    KINDS,
    KING,
    KNIGHT,
    LANCE,
    MOST_CELLS,
    MOST_IN_HAND,
    MOST_LEGAL,
    PAWN,
    PROMOTED,
    RAYS,
    ROOK,
    SLIDES,
    STEPS,
)
from flyball.app.games.table import FINISHED

OCCURRENCES = 4
"""Occurrences of a position that end a game."""

POSITION = np.dtype(
    [
        ("board", np.int8, MOST_CELLS),
        ("hands", np.uint8, (2, KINDS)),  # of the seat to move, then of the other one
        ("seat", np.int8),  # to move, also in a finished game
        ("checked", np.bool_),  # whether the seat to move is in check
        ("over", np.bool_),
        ("truncated", np.bool_),
        ("winner", np.int8),  # FINISHED: nobody
        ("occurrences", np.int8),  # of this position in the game so far
        ("played", np.int16),  # moves so far
        ("legal", np.int16),  # number of legal actions; 0 in a finished game
    ],
    align=True,
)
Position = np.void
Cells = NDArray[np.int8]
Actions = NDArray[np.int32]
Keys = NDArray[np.uint64]

WORKSPACE = np.dtype(
    [
        # the ray on which a piece shields its king, or -1; then 1 where other pieces than the king may go
        ("marks", np.int8, (2, MOST_CELLS)),
        ("files", np.int8, 9),  # 1 where the mover has an unpromoted pawn
        ("turned", np.int8, MOST_CELLS),  # a board seen by the other seat, and its marks
        ("turned_marks", np.int8, (2, MOST_CELLS)),
        ("found", np.int32, MOST_LEGAL),
        ("replies", np.int32, MOST_LEGAL),
    ],
    align=True,
)
"""Memory of the move generator: one record for a thread. A record may hold any content."""


def _random_keys(seed: int, *shape: int) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(1 << 63, size=shape, dtype=np.uint64) << np.uint64(1)


_CELL_KEYS = _random_keys(1, 2 * CODES - 1, MOST_CELLS)  # by code + 14
_HAND_KEYS = _random_keys(2, 2, KINDS, MOST_IN_HAND + 1)
_CHECKED = np.uint64(1)
"""Key bit that says whether the seat to move is in check. The other bits are a hash (Zobrist 1970)."""


@kernel
def attacked(tables: np.void, board: Cells, cell: int) -> bool:
    """Return whether the other seat attacks a square."""
    step = tables["step"]
    for ray in range(RAYS):
        square = step[cell, ray]
        beside = True
        while square >= 0:
            piece = board[square]
            if piece:
                if piece < 0 and (SLIDES[-piece] >> ray & 1 or (beside and STEPS[-piece] >> ray & 1)):
                    return True
                break
            square = step[square, ray]
            beside = False
    for jump in range(RAYS, DIRECTIONS):
        square = step[cell, jump]
        if square >= 0 and board[square] == -KNIGHT:
            return True
    return False


@kernel
def find_king(tables: np.void, board: Cells) -> int:
    """Return the square of the mover's king."""
    for cell in range(tables["cells"]):
        if board[cell] == KING:
            return cell
    return -1


@kernel
def checks(tables: np.void, board: Cells, king: int, marks: Cells) -> int:  # noqa: C901 - one look around
    """Return the number of pieces that give check; write ``marks``: pins, and squares that end a single check."""
    step, cells, pins, open_ = tables["step"], tables["cells"], marks[0], marks[1]
    pins[:cells], open_[:cells] = -1, 0
    count = 0
    for ray in range(RAYS):
        square, shield, beside = step[king, ray], -1, True
        while square >= 0:
            piece = board[square]
            if piece > 0:
                if shield >= 0:
                    break
                shield = square
            elif piece < 0:
                if SLIDES[-piece] >> ray & 1 or (beside and STEPS[-piece] >> ray & 1):
                    if shield >= 0:
                        pins[shield] = ray
                    else:
                        count += 1
                        between = step[king, ray]
                        while between != square:
                            open_[between] = 1
                            between = step[between, ray]
                        open_[square] = 1
                break
            square = step[square, ray]
            beside = False
    for jump in range(RAYS, DIRECTIONS):
        square = step[king, jump]
        if square >= 0 and board[square] == -KNIGHT:
            count += 1
            open_[square] = 1
    if not count:
        open_[:cells] = 1
    return count


@kernel
def board_moves(  # noqa: C901, PLR0912 - from piece to piece
    tables: np.void, board: Cells, count: int, marks: Cells, out: Actions
) -> int:
    """Write the legal moves on the board, ascending, where ``count`` pieces give check; return their number."""
    step, side, cells, zone = tables["step"], tables["side"], tables["cells"], tables["zone"]
    pins, open_ = marks[0], marks[1]
    written = 0
    for cell in range(cells):
        piece = board[cell]
        if piece <= 0 or (count > 1 and piece != KING):
            continue
        begin, pin = written, pins[cell]
        promoted = PROMOTED[piece]
        stuck = 1 if piece in (PAWN, LANCE) else 2 if piece == KNIGHT else 0  # rows from which it could not move on
        ways = STEPS[piece] | SLIDES[piece]
        for direction in range(DIRECTIONS):
            if not ways >> direction & 1:
                continue
            if pin >= 0 and (direction >= RAYS or direction % HALF_TURN != pin % HALF_TURN):
                continue
            square = step[cell, direction]
            while square >= 0 and board[square] <= 0:
                if piece == KING:
                    board[cell] = 0
                    may = not attacked(tables, board, square)
                    board[cell] = KING
                else:
                    may = open_[square] == 1
                if may:
                    action = (cell * (cells - 1) + square - (square > cell)) * 2
                    if square >= stuck * side:
                        out[written] = action
                        written += 1
                    if promoted and (cell < zone * side or square < zone * side):
                        out[written] = action + 1
                        written += 1
                if board[square] < 0 or not SLIDES[piece] >> direction & 1:
                    break
                square = step[square, direction]
        for last in range(begin + 1, written):  # sorted by insertion, because a piece has few moves
            action, k = out[last], last
            while k > begin and out[k - 1] > action:
                out[k] = out[k - 1]
                k -= 1
            out[k] = action
    return written


@kernel
def legal_moves(tables: np.void, game: Position, work: np.void, out: Actions) -> int:  # noqa: C901 - moves, then drops
    """Set ``checked``, and write the legal actions of the seat to move, ascending; return their number."""
    board, hand, side, cells = game["board"], game["hands"][0], tables["side"], tables["cells"]
    marks, files, step = work["marks"], work["files"], tables["step"]
    open_ = marks[1]
    count = checks(tables, board, find_king(tables, board), marks)
    game["checked"] = count > 0
    written = board_moves(tables, board, count, marks, out)
    if count > 1:
        return written
    files[:] = 0
    for cell in range(cells):
        if board[cell] == PAWN:
            files[cell % side] = 1
    kinds, codes, drops = tables["kinds"], tables["codes"], tables["drops"]
    for cell in range(cells):
        if board[cell] or not open_[cell]:
            continue
        for kind in range(kinds):
            code = codes[kind]
            if not hand[code - 1]:
                continue
            if cell < side * (2 if code == KNIGHT else 1 if code in (PAWN, LANCE) else 0):
                continue
            if code == PAWN and files[cell % side]:
                continue
            if code == PAWN and board[step[cell, 0]] == -KING and _pawn_mates(tables, board, cell, work):
                continue
            out[written] = drops + cell * kinds + kind
            written += 1
    return written


@kernel
def _pawn_mates(tables: np.void, board: Cells, cell: int, work: np.void) -> bool:
    """Return whether a pawn dropped before the king gives mate. No drop could come between the pawn and the king."""
    cells, turned, marks = tables["cells"], work["turned"], work["turned_marks"]
    for square in range(cells):
        turned[square] = -board[cells - 1 - square]
    turned[cells - 1 - cell] = -PAWN
    count = checks(tables, turned, find_king(tables, turned), marks)
    return board_moves(tables, turned, count, marks, work["replies"]) == 0


@kernel
def move(tables: np.void, game: Position, action: int) -> None:
    """Play a legal action, and turn the position to the other seat. ``checked`` and ``legal`` are not updated."""
    board, hands, cells, kinds = game["board"], game["hands"], tables["cells"], tables["kinds"]
    if action >= tables["drops"]:
        to, kind = divmod(action - tables["drops"], kinds)
        code = tables["codes"][kind]
        hands[0, code - 1] -= 1
        board[to] = code
    else:
        cell, rest = divmod(action, 2 * (cells - 1))
        to = rest // 2
        to += to >= cell
        if board[to] < 0:
            hands[0, BASE[-board[to]] - 1] += 1
        board[to] = PROMOTED[board[cell]] if rest & 1 else board[cell]
        board[cell] = 0
    for cell in range(cells // 2):
        board[cell], board[cells - 1 - cell] = -board[cells - 1 - cell], -board[cell]
    board[cells // 2] = -board[cells // 2]
    for kind in range(KINDS):
        hands[0, kind], hands[1, kind] = hands[1, kind], hands[0, kind]
    game["seat"] = 1 - game["seat"]


@kernel
def position_key(tables: np.void, game: Position) -> np.uint64:
    """Return the key of a position. Equal positions of one seat have equal keys. ``checked`` has to be up to date."""
    board, hands = game["board"], game["hands"]
    key = _CHECKED if game["checked"] else np.uint64(0)
    for cell in range(tables["cells"]):
        if board[cell]:
            key ^= _CELL_KEYS[board[cell] + CODES - 1, cell]
    for owner in range(2):
        for kind in range(KINDS):
            if hands[owner, kind]:
                key ^= _HAND_KEYS[owner, kind, hands[owner, kind]]
    return key


@kernel
def occurred(keys: Keys, last: int) -> tuple[int, int]:
    """Return how often the position at ``keys[last]`` has occurred, and where first."""
    count, first = 0, last
    for ply in range(last, -1, -2):
        if keys[ply] == keys[last]:
            count, first = count + 1, ply
    return count, first


@kernel
def always_checked(keys: Keys, first: int, last: int) -> bool:
    """Return whether the seat that moved into ``keys[last]`` gave check with each move since ``keys[first]``."""
    for ply in range(last, first, -2):  # noqa: SIM110 - kernels have no all()
        if not keys[ply] & _CHECKED:
            return False
    return True


@kernel
def may_declare(tables: np.void, game: Position) -> bool:
    """Return whether the seat to move may declare a win. ``checked`` has to be up to date."""
    board, camp, needed = game["board"], tables["zone"] * tables["side"], tables["points"][game["seat"]]
    if not needed or game["checked"]:
        return False
    pieces, points, king = 0, 0, False
    for cell in range(camp):
        if board[cell] == KING:
            king = True
        elif board[cell] > 0:
            pieces += 1
            points += 5 if BASE[board[cell]] >= BISHOP else 1
    for kind in range(KINDS):
        points += game["hands"][0, kind] * (5 if BISHOP <= kind + 1 <= ROOK else 1)
    return king and pieces >= tables["pieces"] and points >= needed


class Lists(NamedTuple):
    """Moves, positions and legal actions of N games. The first numbers of each row are in use."""

    moves: NDArray[np.uint16]  # [N, limit]
    keys: Keys  # [N, limit + 1] of the positions
    legal: NDArray[np.uint16]  # [N, most] legal actions, ascending


def new_lists(slots: int, limit: int) -> Lists:
    """Return the lists of games of at most ``limit`` moves."""
    return Lists(
        np.zeros((slots, limit), dtype=np.uint16),
        np.zeros((slots, limit + 1), dtype=np.uint64),
        np.zeros((slots, MOST_LEGAL), dtype=np.uint16),
    )


@kernel
def update_game(tables: np.void, game: Position, lists: Lists, slot: int, work: np.void) -> None:
    """Update a game after a move, or at its beginning.

    Write the position's key and its legal actions, and end the game if it is over. A game is cut off after as many
    moves as ``lists`` hold.
    """
    played, seat, out, keys = int(game["played"]), game["seat"], work["found"], lists.keys[slot]
    count = legal_moves(tables, game, work, out)
    keys[played] = position_key(tables, game)
    times, first = occurred(keys, played)
    game["occurrences"], game["over"], game["winner"] = times, True, FINISHED
    if times >= OCCURRENCES:
        giving = always_checked(keys, first, played)
        if giving != always_checked(keys, first, played - 1):
            game["winner"] = seat if giving else 1 - seat
    elif not count:
        game["winner"] = 1 - seat
    elif may_declare(tables, game):
        game["winner"] = seat
    elif played == lists.moves.shape[1]:
        game["truncated"] = True
    else:
        game["over"] = False
    game["legal"] = 0 if game["over"] else count
    for k in range(game["legal"]):
        lists.legal[slot, k] = out[k]


@kernel
def play(tables: np.void, game: Position, lists: Lists, slot: int, action: int) -> None:
    """Make the move of a legal action. Call ``update_game`` next: until then the legal actions are stale."""
    lists.moves[slot, game["played"]] = action
    game["played"] += 1
    move(tables, game, action)


@kernel
def settle(tables: np.void, game: Position, lists: Lists, slot: int, work: np.void) -> None:
    """Update a game after a move, then play forced moves."""
    update_game(tables, game, lists, slot, work)
    while game["legal"] == 1:
        play(tables, game, lists, slot, int(lists.legal[slot, 0]))
        update_game(tables, game, lists, slot, work)
