"""Go: its codec and our own rules, which equal OpenSpiel's.

Suicide is illegal, as is taking back at once in a ko. A stone that repeats any former position ends the game as a draw.
Otherwise the game ends after two passes, or at its greatest length. Then area and komi are counted, and all stones
count as alive.

A set of points is a row of 64-bit words, between two words that stay empty. On a board of side n, the point in row r,
column c is bit (n + 1) r + c. One bit between the rows is in no set, so that no step runs round the edge.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import inlined, kernel
from flyball.app.games.board_table import BoardRules, bit_count, cut_off, finish, forced, game_type, write_move
from flyball.app.games.codec import TURNS, Codec, gather, identical, planes, square_symmetries
from flyball.app.games.table import Indices, Seats, UnknownGame

Words = NDArray[np.uint64]


def go(board_size: int = 19) -> Codec:
    """Encode planes of own, opponent's and empty cells, and komi (ones for the second seat); the last action passes."""
    cells = np.arange(board_size**2)
    views = np.stack([planes((0, 1, 2, 3), cells), planes((1, 0, 2, 3), cells)])
    actions = board_size**2 + 1
    symmetries = square_symmetries(TURNS, board_size, 4, passing=True)
    return Codec(views.shape[1], gather(views), identical(2, actions), symmetries, planes=(4, board_size, board_size))


LARGEST = 19
_MARKS = np.random.default_rng(0).integers(2**16, size=(2, LARGEST * (LARGEST + 1)), dtype=np.uint16)
"""Random numbers by seat and bit (Zobrist, 1970). A position's mark is the exclusive or of its stones' numbers."""
_WORD = 64  # bits
_ONE, _NONE = np.uint64(1), np.uint64(0)
_BOARD, _FREE, _POINT, _TAKEN, _CHAIN, _REST, _LEGAL = range(7)  # working sets of a turn; _FREE: empty points


@cache
def go_rules(board_size: int = LARGEST, komi: float = 7.5, max_game_length: int = 2 * LARGEST**2) -> BoardRules:
    """Return the rules on a board of ``board_size`` x ``board_size`` points. Raises ``UnknownGame``."""
    if not 2 <= board_size <= LARGEST:
        raise UnknownGame(f"No Go on a board of size {board_size}.", hint=f"Set board_size to 2 to {LARGEST}.")
    codec, longest = go(board_size), max(max_game_length, 2)
    fields = (
        ("stones", np.uint64, (2, board_size * (board_size + 1) // _WORD + 3)),  # a set for each seat
        ("ko", np.int16),  # the bit of the point that may not be taken back; -1: no such point
        ("marks", np.uint16, longest + 1),  # of the positions so far
        ("komi", np.float32),
    )
    begun = np.zeros((), dtype=game_type(codec, longest, *fields))
    begun["open"][:], begun["ko"], begun["komi"] = 1, -1, komi
    name = f"go(board_size={board_size},komi={komi},max_game_length={max_game_length})"
    return BoardRules(name, version=1, codec=codec, begun=begun, play=_play, show=_show)


@kernel
def _play(games: NDArray[np.void], slots: Indices, actions: Indices, limit: int) -> None:
    """See ``board_table.Play``."""
    side = int(np.sqrt(games["open"].shape[1] - 1))
    sets = np.zeros((_LEGAL + 1, games["stones"].shape[2]), dtype=np.uint64)
    for action in range(side * side):
        _add(sets[_BOARD], _bit(action, side))
    for k in range(len(slots)):
        game, action = games[slots[k]], int(actions[k])
        while action >= 0:
            _turn(game, action, limit, side, sets)
            action = -1
            if game["mover"] >= 0:
                _allow(game, side, sets)
                action = forced(game)


@inlined
def _turn(game: np.void, action: int, limit: int, side: int, sets: Words) -> None:  # noqa: C901 - the rules of a turn
    """Place the mover's stone or pass. The game ends if the rules say so, or at the limit."""
    mover, played, passing = int(game["mover"]), write_move(game, action), side * side
    moves, marks, stones, captured = game["moves"], game["marks"], game["stones"], sets[_TAKEN]
    mark, repeated = marks[played - 1], False
    marks[played] = mark
    game["ko"] = -1
    if action != passing:
        _place_stone(stones, mover, action, side, sets)
        mark ^= _MARKS[mover, _bit(action, side)]
        count, beside = 0, _NONE  # stones taken; neighbours that were empty or the mover's
        for word in range(1, len(captured) - 1):
            beside |= _near(sets[_POINT], word, side) & (sets[_FREE, word] | stones[mover, word])
            left = captured[word]
            while left:
                bit = (word - 1) * _WORD + bit_count((left - _ONE) & ~left)
                mark ^= _MARKS[1 - mover, bit]
                left &= left - _ONE
                count += 1
                if count == 1:
                    game["ko"] = bit
        if beside or count > 1:
            game["ko"] = -1
        former = False
        for earlier in range(played):
            former |= marks[earlier] == mark
        marks[played] = mark
        repeated = former and _is_repeated(stones, moves[:played], marks, side, sets[_BOARD])
    game["mover"] = 1 - mover
    if repeated:
        finish(game, 0)
    elif (action == passing and played > 1 and moves[played - 2] == passing) or played == len(moves):
        lead = _area(stones, side, sets[_BOARD]) - game["komi"]
        finish(game, int(lead > 0) - int(lead < 0))
    elif played == limit:
        cut_off(game)


@inlined
def _place_stone(stones: Words, mover: int, action: int, side: int, sets: Words) -> None:
    """Place a stone and take the opponent's chains left without a liberty."""
    mine, theirs = stones[mover], stones[1 - mover]
    point, chain, rest, captured = sets[_POINT], sets[_CHAIN], sets[_REST], sets[_TAKEN]
    for word in range(1, len(mine) - 1):
        point[word] = captured[word] = _NONE
    _add(point, _bit(action, side))
    for word in range(1, len(mine) - 1):
        mine[word] |= point[word]
        sets[_FREE, word] = sets[_BOARD, word] & ~(mine[word] | theirs[word])
        rest[word] = _near(point, word, side) & theirs[word]
    while _take_chain(rest, theirs, chain, side):
        liberties = _NONE
        for word in range(1, len(mine) - 1):
            liberties |= _near(chain, word, side) & sets[_FREE, word]
        if not liberties:
            for word in range(1, len(mine) - 1):
                captured[word] |= chain[word]
    for word in range(1, len(mine) - 1):
        theirs[word] &= ~captured[word]


@inlined
def _allow(game: np.void, side: int, sets: Words) -> None:  # noqa: C901 - one rule
    """Open the legal actions of the seat to move.

    These are the points beside an empty one, the liberties of its chains that have another, and the last liberties of
    the other seat's chains.
    """
    free, legal, chain, rest, stones = sets[_FREE], sets[_LEGAL], sets[_CHAIN], sets[_REST], game["stones"]
    words = range(1, len(free) - 1)
    for word in words:
        free[word] = sets[_BOARD, word] & ~(stones[0, word] | stones[1, word])
    for word in words:
        legal[word] = free[word] & _near(free, word, side)
    for seat in range(2):
        for word in words:  # chains beside points that are not yet legal
            rest[word] = free[word] & ~legal[word]
        for word in words:
            sets[_POINT, word] = _near(rest, word, side) & stones[seat, word]
        while _take_chain(sets[_POINT], stones[seat], chain, side):
            count = 0
            for word in words:
                rest[word] = _near(chain, word, side) & free[word]
                count += bit_count(rest[word])
            if (count > 1) == (seat == game["mover"]):
                for word in words:
                    legal[word] |= rest[word]
    if game["ko"] >= 0:
        _remove(legal, int(game["ko"]))
    for action in range(side * side):
        game["open"][action] = _holds(legal, _bit(action, side))
    game["open"][side * side] = 1


@kernel
def _is_repeated(stones: Words, moves: Indices, marks: NDArray[np.uint16], side: int, board: Words) -> bool:
    """Return whether the last of ``moves`` repeats a position; those of the same mark are played again to compare."""
    sets, former = np.zeros((_LEGAL + 1, len(board)), dtype=np.uint64), np.zeros(stones.shape, dtype=np.uint64)
    for word in range(len(board)):
        sets[_BOARD, word] = board[word]
    for played in range(len(moves)):
        if marks[played] == marks[len(moves)]:
            changed = _NONE
            for word in range(len(board)):
                changed |= former[0, word] ^ stones[0, word] | former[1, word] ^ stones[1, word]
            if not changed:
                return True
        if moves[played] < side * side:
            _place_stone(former, played % 2, int(moves[played]), side, sets)
    return False


@kernel
def _area(stones: Words, side: int, board: Words) -> int:
    """Return the first seat's lead in area (Tromp-Taylor): stones, and empty points that border only them."""
    free, rest, chain = np.zeros((3, len(board)), dtype=np.uint64)
    lead = 0
    for word in range(len(board)):
        free[word] = rest[word] = board[word] & ~(stones[0, word] | stones[1, word])
        lead += bit_count(stones[0, word]) - bit_count(stones[1, word])
    while _take_chain(rest, free, chain, side):
        size, first, second = 0, _NONE, _NONE
        for word in range(1, len(board) - 1):
            size += bit_count(chain[word])
            first |= _near(chain, word, side) & stones[0, word]
            second |= _near(chain, word, side) & stones[1, word]
        lead += size * (int(not second) - int(not first))
    return lead


@inlined
def _bit(action: int, side: int) -> int:
    return action + action // side


@inlined
def _add(points: Words, bit: int) -> None:
    points[1 + bit // _WORD] |= _ONE << np.uint64(bit % _WORD)


@inlined
def _remove(points: Words, bit: int) -> None:
    points[1 + bit // _WORD] &= ~(_ONE << np.uint64(bit % _WORD))


@inlined
def _holds(points: Words, bit: int) -> np.uint64:
    return np.uint64(points[1 + bit // _WORD] >> np.uint64(bit % _WORD) & _ONE)


@kernel
def _near(points: Words, word: int, side: int) -> np.uint64:
    """Return a word of the neighbours of points. Some are no points: bits between the rows, or beyond the board."""
    before, current, after = points[word - 1], points[word], points[word + 1]
    row, back = np.uint64(side + 1), np.uint64(_WORD - side - 1)
    last = np.uint64(_WORD - 1)
    return np.uint64(
        (current << _ONE | current >> _ONE | before >> last | after << last)
        | (current << row | current >> row | before >> back | after << back)
    )


@inlined
def _take_chain(rest: Words, area: Words, chain: Words, side: int) -> bool:
    """Move the first point of ``rest``, and all of ``area`` that connects with it, to ``chain``.

    Return False if ``rest`` is empty.
    """
    for first in range(1, len(rest) - 1):
        if rest[first]:
            for word in range(1, len(rest) - 1):
                chain[word] = _NONE
            chain[first] = rest[first] & ~(rest[first] - _ONE)
            growing = True
            while growing:
                growing = False
                for word in range(1, len(rest) - 1):
                    grown = chain[word] | _near(chain, word, side) & area[word]
                    growing |= grown != chain[word]
                    chain[word] = grown
            for word in range(1, len(rest) - 1):
                rest[word] &= ~chain[word]
            return True
    return False


@kernel
def _show(games: NDArray[np.void], slots: Indices, seats: Seats, views: NDArray[np.uint8]) -> None:
    """See ``board_table.Show``."""
    side = int(np.sqrt(games["open"].shape[1] - 1))
    cells = side * side
    for k in range(len(slots)):
        game, view = games[slots[k]], views[k]
        mine, theirs = game["stones"][seats[k]], game["stones"][1 - seats[k]]
        for cell in range(cells):
            own, others = _holds(mine, _bit(cell, side)), _holds(theirs, _bit(cell, side))
            view[cell] = own
            view[cells + cell] = others
            view[2 * cells + cell] = _ONE - own - others
        view[3 * cells :] = game["played"] % 2  # komi is given while the second seat is to move
