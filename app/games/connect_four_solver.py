"""Solver of connect four, by search to the end of the game.

A depth-first search asks whether the mover reaches a goal: a win, or at least a draw. A position is two sets of cells:
the mover's stones, and all stones. Row r of column c is bit 7 c + r. The seventh bit of a column stays empty, so that
no line runs from one column into the next. Adding a column's lowest bit to all stones gives its next cell.

Sources: the representation and the idea of safe moves are in P. Pons, "Solving Connect 4: how to build a perfect AI"
(blog.gamesolver.org) and J. Tromp's Fhourstones; following up in a column is the rule "claimeven" of L. V. Allis, "A
Knowledge-based Approach of Connect-Four" (1988).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import inlined, kernel
from flyball.app.games.connect_four import CELLS, COLUMNS, ROWS

_COLUMN = ROWS + 1  # bits of a column
_ORDER = np.array(sorted(range(COLUMNS), key=lambda column: abs(2 * column + 1 - COLUMNS)))  # the centre first
_BOTTOM = sum(1 << _COLUMN * column for column in range(COLUMNS))
_BOARD = _BOTTOM * ((1 << ROWS) - 1)
_ODD_ROWS = _BOTTOM * sum(1 << row for row in range(0, ROWS, 2))  # the first, third and fifth
_EVEN_ROWS = _BOARD ^ _ODD_ROWS
_CELLS_OF_COLUMN = (1 << ROWS) - 1

_NO, _YES, _UNKNOWN = 0, 1, -1
_FACTS = np.array([[0b0101, 0b0010], [0b0100, 0b1010]])
"""Bits of an entry that follow from a goal and an answer.

The axes are the goal [0 a draw, 1 a win] and the answer [no, yes]. Each goal has a bit for no, then one for yes.
Whoever wins gets at least a draw, and whoever does not get a draw does not win.
"""

_TABLE_BITS = 22
_SHIFT, _SPREAD = np.uint64(64 - _TABLE_BITS), np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio
_ILLEGAL = -2

Entries = NDArray[np.int64]
"""Known facts by position, one word each.

A word is the position's key times 16, plus the facts. Threads may share the words, because each is written as a whole.
"""


class ConnectFourSolver:
    """Solver of positions on the usual 6 x 7 cells. See ``solver.Solver``. Threads may share a solver."""

    lengths = (8, 34)

    def __init__(self) -> None:
        self._entries = np.zeros(1 << _TABLE_BITS, dtype=np.int64)  # 32 MiB

    def values(self, history: Sequence[int]) -> dict[int, int]:
        """See ``solver.Solver.values``."""
        by_column = _values(*_position(history), self._entries).tolist()
        return {column: value for column, value in enumerate(by_column) if value != _ILLEGAL}

    def optimal(self, history: Sequence[int]) -> frozenset[int]:
        """See ``solver.Solver.optimal``."""
        return frozenset(np.flatnonzero(_optimal(*_position(history), self._entries)).tolist())

    def quiet(self, history: Sequence[int]) -> bool:
        """See ``solver.Solver.quiet``."""
        return _quiet(*_position(history))


def _position(history: Sequence[int]) -> tuple[int, int]:
    """Return the mover's stones and all stones after a history of columns."""
    mine, stones = 0, 0
    for column in history:
        mine, stones = mine ^ stones, stones | stones + (1 << _COLUMN * column)
    return mine, stones


@kernel
def _values(mine: int, stones: int, entries: Entries) -> NDArray[np.int8]:
    """Return the value of each column [7] for the mover. 1 is a win, 0 a draw, -1 a loss, and -2 a full column."""
    values = np.full(COLUMNS, _ILLEGAL, dtype=np.int8)
    for column in range(COLUMNS):
        move = _cell(stones, column)
        if move:
            if _keeps(mine, stones, move, 1, entries):
                values[column] = 1
            else:
                values[column] = 0 if _keeps(mine, stones, move, 0, entries) else -1
    return values


@kernel
def _optimal(mine: int, stones: int, entries: Entries) -> NDArray[np.bool_]:
    """Return a mask [7] of the columns that keep the position's value. The values of the others are not computed."""
    is_optimal = np.zeros(COLUMNS, dtype=np.bool_)
    for goal in (1, 0):
        for column in range(COLUMNS):
            move = _cell(stones, column)
            is_optimal[column] = move != 0 and _keeps(mine, stones, move, goal, entries)
        if is_optimal.any():
            return is_optimal
    for column in range(COLUMNS):
        is_optimal[column] = _cell(stones, column) != 0
    return is_optimal


@kernel
def _keeps(mine: int, stones: int, move: int, goal: int, entries: Entries) -> bool:
    """Return whether the mover gets at least ``goal`` by a move. The goal 1 is a win, 0 a draw."""
    theirs, after = mine ^ stones, stones | move
    if _completing(mine, stones) & move:
        return True
    if after == _BOARD:
        return goal == 0
    if _completing(theirs, after) & _next_cells(after):
        return False
    return not _reaches(theirs, after, 1 - goal, entries)


@kernel
def _quiet(mine: int, stones: int) -> bool:
    """Return whether neither side could complete a line with the next stone."""
    return not (_completing(mine, stones) | _completing(mine ^ stones, stones)) & _next_cells(stones)


@kernel
def _reaches(mine: int, stones: int, goal: int, entries: Entries) -> bool:
    """Return whether the mover gets at least ``goal``.

    The goal 1 is a win, 0 a draw. The mover must not have a winning move. The opponent's goal is 1 - ``goal``: a draw
    against a win, and a win against a draw. The search keeps its own stack, because calls would count references to the
    entries.
    """
    movers, boards = np.empty(CELLS, dtype=np.int64), np.empty(CELLS, dtype=np.int64)
    moves, queues = np.empty(CELLS, dtype=np.int64), np.empty(CELLS, dtype=np.int64)
    depth = 0
    while True:
        goal_here = goal ^ depth & 1
        safe = _safe(mine, stones)
        answer = _answer_without_search(mine, stones, safe, goal_here, entries)
        if answer == _UNKNOWN:
            queue = _order_columns(mine, stones, safe, goal_here, entries)
            if queue > 0:
                movers[depth], boards[depth], moves[depth], queues[depth] = mine, stones, safe, queue
            else:
                answer = _NO if queue == 0 else _YES
        while answer != _UNKNOWN:
            if depth == 0:
                return answer == _YES
            depth -= 1
            if answer == _YES and queues[depth]:  # the opponent has an answer to this move, but another is left
                answer = _UNKNOWN
            else:
                answer = 1 - answer
                _remember(movers[depth] + boards[depth], goal ^ depth & 1, answer, entries)
        column = (queues[depth] & 7) - 1
        queues[depth] >>= 3
        mine = movers[depth] ^ boards[depth]
        stones = boards[depth] | moves[depth] & _CELLS_OF_COLUMN << _COLUMN * column
        depth += 1


@inlined
def _safe(mine: int, stones: int) -> int:
    """Return the cells after which the opponent cannot win at once."""
    return _safe_from(_completing(mine ^ stones, stones), stones)


@inlined
def _safe_from(threats: int, stones: int) -> int:
    """Return the playable cells that allow the opponent, whose winning cells are ``threats``, no immediate win."""
    safe = _next_cells(stones)
    forced = safe & threats
    if forced:
        safe = 0 if forced & forced - 1 else forced
    return safe & ~(threats >> 1)


@inlined
def _answer_without_search(mine: int, stones: int, safe: int, goal: int, entries: Entries) -> int:
    """Return whether the mover reaches its goal; ``_UNKNOWN`` if only a search can tell."""
    if safe == 0:
        return _NO
    empty = _BOARD ^ stones
    left = _count(empty)
    if left <= 2:  # the mover's stone wins nothing, and is safe
        return _YES if goal == 0 else _NO
    if left % 2 == 0:
        # The first seat is to move. The second seat can answer each stone with one above it, and so gets every even
        # row. The number of columns whose next cell is in an even row is even: the second seat answers a stone in one
        # of them with a stone in another. So the first seat gets at most these cells and the odd rows.
        either = _next_cells(stones) & _EVEN_ROWS
        if not _four(mine | empty & _ODD_ROWS | either):
            if goal == 1:
                return _NO
            if _four(mine ^ stones | empty & _EVEN_ROWS & ~either):
                return _NO
    return _stored_answer(mine + stones, goal, entries)


@inlined
def _order_columns(mine: int, stones: int, safe: int, goal: int, entries: Entries) -> int:
    """Return the columns of safe cells, best first, 3 bits each.

    Each number is a column plus 1. Columns are ordered by threats made, then from the centre. Moves that the entries
    refute are left out. Return -1 if a move is seen to reach the goal.
    """
    queue, count = 0, 0
    scores = np.empty(COLUMNS, dtype=np.int64)
    for column in _ORDER:
        move = safe & _CELLS_OF_COLUMN << _COLUMN * column
        if move == 0:
            continue
        after = stones | move
        answer = _stored_answer((mine ^ stones) + after, 1 - goal, entries)
        if answer == _YES:
            continue
        threats = _completing(mine | move, after)
        replies = _safe_from(threats, after)
        if answer == _NO or replies == 0:
            return -1
        score, rank = _count(threats), count
        while rank > 0 and scores[rank - 1] < score:
            scores[rank] = scores[rank - 1]
            rank -= 1
        scores[rank] = score
        before = (1 << 3 * rank) - 1
        queue = queue & before | column + 1 << 3 * rank | (queue & ~before) << 3
        count += 1
    return queue


@inlined
def _stored_answer(key: int, goal: int, entries: Entries) -> int:
    """Return the answer stored under a key, the mover's stones plus all stones; ``_UNKNOWN`` if missing."""
    entry = entries[_index_of(key)]
    if entry >> 4 != key:
        return _UNKNOWN
    return int(entry >> 2 * goal & 3) - 1


@inlined
def _remember(key: int, goal: int, answer: int, entries: Entries) -> None:
    """Add an answer to a position's entry, or replace another position's."""
    index = _index_of(key)
    entry = entries[index]
    entries[index] = (entry if entry >> 4 == key else key << 4) | _FACTS[goal, answer]


@inlined
def _index_of(key: int) -> int:
    return int(np.int64(np.uint64(key) * _SPREAD >> _SHIFT))


@inlined
def _cell(stones: int, column: int) -> int:
    """Return the cell that a stone in a column falls to. Return 0 if the column is full."""
    return _next_cells(stones) & _CELLS_OF_COLUMN << _COLUMN * column


@inlined
def _next_cells(stones: int) -> int:
    """Return the cell that a stone in each column falls to."""
    return stones + _BOTTOM & _BOARD


@inlined
def _completing(mine: int, stones: int) -> int:
    """Return the empty cells, reachable yet or not, that would complete a line of ``mine``."""
    completing = mine << 1 & mine << 2 & mine << 3
    for step in (_COLUMN - 1, _COLUMN, _COLUMN + 1):
        pairs = mine << step & mine << 2 * step
        completing |= pairs & (mine << 3 * step | mine >> step)
        pairs = mine >> step & mine >> 2 * step
        completing |= pairs & (mine << step | mine >> 3 * step)
    return completing & (_BOARD ^ stones)


@inlined
def _four(cells: int) -> bool:
    """Return whether cells hold a line of four."""
    fours = 0
    for step in (1, _COLUMN - 1, _COLUMN, _COLUMN + 1):
        pairs = cells & cells >> step
        fours |= pairs & pairs >> 2 * step
    return fours != 0


@inlined
def _count(cells: int) -> int:
    count = 0
    while cells:
        cells &= cells - 1
        count += 1
    return count
