"""Players of Shogi and minishogi by rule and search.

They see what a network sees.

- ``heuristic``: looks one ply ahead at captures, promotion, checks, and whether the moved piece can be taken.
- ``mate``: gives mate if it can, and otherwise plays as ``heuristic``.
- ``search``: alpha-beta on material to a small depth, then captures only; it is deterministic.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball.app.core import HEURISTIC
from flyball.app.core.kernels import kernel
from flyball.app.games.shogi.encode import Layout, Numbering, recall
from flyball.app.games.shogi.rules import (
    POSITION,
    WORKSPACE,
    Actions,
    Cells,
    Position,
    attacked,
    find_king,
    legal_moves,
    move,
)
from flyball.app.games.shogi.variant import (
    BASE,
    DIRECTIONS,
    KING,
    KNIGHT,
    MOST_LEGAL,
    PROMOTED,
    RAYS,
    SLIDES,
    STEPS,
    Variant,
)
from flyball.app.games.table import Floats, Heuristic, Mask

DEPTH = 3
"""Plies of ``search`` before it looks at captures only."""

_CAPTURES = 4
"""Most plies of captures after the first ``DEPTH`` plies."""

_VALUES = np.array([0, 90, 315, 405, 495, 540, 855, 990, 10_000, 540, 540, 540, 540, 945, 1395], dtype=np.int64)
"""Values of pieces by code. In a hand, a piece has the value of its unpromoted base."""
_WORTH = _VALUES + _VALUES[BASE]
"""Gain in material by capturing a piece, by its code. The opponent loses the piece, and the own hand gains its base."""

_CHECK = 60
_PER_NAT = 60.0
"""Difference in score that makes a move e times as likely. It applies to the better of two moves of ``heuristic``."""

_SURE = 40.0
"""Log-weight of a chosen move. All others have 0, so that the choice is practically certain."""

_MATE, _INFINITY = 1_000_000, 10_000_000


def levels(variant: Variant, layout: Layout, numbering: Numbering) -> dict[str, Heuristic]:
    """Return the players by name, weakest first."""
    tables = variant.tables, layout.tables, numbering.number
    ways: dict[str, Callable[..., Floats]] = {
        HEURISTIC: partial(_graded_weights, mates=False),
        "mate": partial(_graded_weights, mates=True),
        "search": partial(_searched_weights, depth=DEPTH),
    }

    def player(way: Callable[..., Floats]) -> Heuristic:
        return lambda obs, mask: way(*tables, np.ascontiguousarray(obs, dtype=np.uint8), mask)

    return {name: player(way) for name, way in ways.items()}


def _graded_weights(
    tables: np.void, layout: np.void, number: NDArray[np.int64], obs: NDArray[np.uint8], mask: Mask, *, mates: bool
) -> Floats:
    weights = np.zeros(mask.shape, dtype=np.float32)
    _grade(tables, layout, number, (obs, mates), weights)
    return weights


def _searched_weights(
    tables: np.void, layout: np.void, number: NDArray[np.int64], obs: NDArray[np.uint8], mask: Mask, *, depth: int
) -> Floats:
    weights = np.zeros(mask.shape, dtype=np.float32)
    weights[np.arange(len(mask)), number[best_actions(tables, layout, obs, depth)]] = _SURE
    return weights


@kernel
def _grade(
    tables: np.void,
    layout: np.void,
    number: NDArray[np.int64],
    request: tuple[NDArray[np.uint8], bool],
    weights: Floats,
) -> None:
    """Write log-weights [K, A] for a request: observations [K, D], and whether a mate is chosen for certain."""
    obs, mates = request
    games, work = np.zeros(2, dtype=POSITION), np.zeros(2, dtype=WORKSPACE)
    game, child = games[0], games[1]
    for k in range(len(obs)):
        recall(tables, layout, obs[k], game)
        out = work[0]["found"]
        for j in range(legal_moves(tables, game, work[0], out)):
            score = float(one_ply(tables, game, out[j]))
            games[1] = games[0]
            move(tables, child, out[j])
            board = child["board"]
            if attacked(tables, board, find_king(tables, board)):
                score += _CHECK
                if mates and legal_moves(tables, child, work[1], work[1]["found"]) == 0:
                    score += _SURE * _PER_NAT + _INFINITY
            weights[k, number[out[j]]] = min(score / _PER_NAT, 2 * _SURE)


@kernel
def target(tables: np.void, board: Cells, action: int) -> tuple[int, int, int, int]:
    """Return an action's squares, and the piece before and after it. The squares are from (-1: a drop) and to."""
    cells = tables["cells"]
    if action >= tables["drops"]:
        to, kind = divmod(action - tables["drops"], tables["kinds"])
        code = int(tables["codes"][kind])
        return -1, to, code, code
    cell, rest = divmod(action, 2 * (cells - 1))
    to = rest // 2
    to += to >= cell
    piece = int(board[cell])
    return cell, to, piece, int(PROMOTED[piece]) if rest & 1 else piece


@kernel
def gain(tables: np.void, board: Cells, action: int) -> int:
    """Return how much an action changes the difference in material."""
    _, to, before, after = target(tables, board, action)
    return int(_WORTH[-board[to]] + _VALUES[after] - _VALUES[before])


@kernel
def one_ply(tables: np.void, game: Position, action: int) -> int:
    """Return the gain of an action, less that of the cheapest recapture, if there is a gain in one."""
    board = game["board"]
    won = gain(tables, board, action)
    cell, to, _, after = target(tables, board, action)
    if after == KING:
        return won
    captured, moved = board[to], board[max(cell, 0)]
    board[to] = 0
    if cell >= 0:
        board[cell] = 0  # pieces behind it now reach the square
    attacker, defended = exchange(tables, board, to)
    board[to] = captured
    if cell >= 0:
        board[cell] = moved
    if not attacker:
        return won
    return won - int(max(0, _WORTH[after] - _WORTH[attacker]) if defended else _WORTH[after])


@kernel
def exchange(  # noqa: C901 - one look around
    tables: np.void, board: Cells, cell: int
) -> tuple[int, bool]:
    """Return the code of the cheapest attacker of a square (0: none), and whether an own piece attacks it."""
    step, cheapest, defended = tables["step"], 0, False
    for direction in range(DIRECTIONS):
        back = direction if direction >= RAYS else (direction + 4) % RAYS
        square, beside = step[cell, direction], True
        while square >= 0:
            piece = board[square]
            if piece < 0 and (SLIDES[-piece] >> direction & 1 or (beside and STEPS[-piece] >> direction & 1)):
                if not cheapest or _WORTH[-piece] < _WORTH[cheapest]:
                    cheapest = -piece
            elif piece > 0 and back < RAYS and (SLIDES[piece] >> back & 1 or (beside and STEPS[piece] >> back & 1)):
                defended = True
            if piece or direction >= RAYS:
                break
            square = step[square, direction]
            beside = False
    for right in (-1, 1):  # own knights jump up to the square
        row, column = cell // tables["side"] + 2, cell % tables["side"] + right
        if row < tables["side"] and 0 <= column < tables["side"]:
            defended |= board[row * tables["side"] + column] == KNIGHT
    return cheapest, defended


NODE = np.dtype(
    [
        *(("material", np.int64), ("depth", np.int64)),  # own less the opponent's, from the root on; plies left
        *(("alpha", np.int64), ("beta", np.int64), ("best", np.int64)),
        *(("next", np.int64), ("count", np.int64)),  # actions tried, and to try
    ],
    align=True,
)
"""A position of a search and its window, for the mover."""


class Stack(NamedTuple):
    """Memory of a search, by ply."""

    games: NDArray[np.void]
    nodes: NDArray[np.void]
    found: Actions  # [plies, most] actions to try
    scores: NDArray[np.int64]  # [plies, most] by which they are ordered
    work: NDArray[np.void]


@kernel
def best_actions(tables: np.void, layout: np.void, obs: NDArray[np.uint8], depth: int) -> NDArray[np.int64]:
    """Return the best action, by search, for each observation [K, D]."""
    plies = depth + _CAPTURES + 1
    stack = Stack(
        np.zeros(plies, dtype=POSITION),
        np.zeros(plies, dtype=NODE),
        np.zeros((plies, MOST_LEGAL), dtype=np.int32),
        np.zeros((plies, MOST_LEGAL), dtype=np.int64),
        np.zeros(1, dtype=WORKSPACE),
    )
    chosen = np.zeros(len(obs), dtype=np.int64)
    for k in range(len(obs)):
        recall(tables, layout, obs[k], stack.games[0])
        root = stack.nodes[0]
        root["material"], root["depth"], root["alpha"], root["beta"] = 0, depth, -_INFINITY, _INFINITY
        chosen[k] = search(tables, stack)
    return chosen


@kernel
def search(tables: np.void, stack: Stack) -> int:
    """Return the best action at node 0, by a loop, because compiled recursion cannot be loaded from disk."""
    expand(tables, stack, 0)
    ply, chosen = 0, -1
    while True:
        node = stack.nodes[ply]
        if node["next"] < node["count"] and node["alpha"] < node["beta"]:
            action = pick(stack, ply, node["next"], node["count"])
            node["next"] += 1
            child = stack.nodes[ply + 1]
            child["material"] = -(node["material"] + gain(tables, stack.games[ply]["board"], action))
            child["depth"], child["alpha"], child["beta"] = node["depth"] - 1, -node["beta"], -node["alpha"]
            stack.games[ply + 1] = stack.games[ply]
            move(tables, stack.games[ply + 1], action)
            ply += 1
            expand(tables, stack, ply)
        elif ply == 0:
            return chosen
        else:
            ply -= 1
            above = stack.nodes[ply]
            if -node["best"] > above["best"]:
                above["best"] = -node["best"]
                if ply == 0:
                    chosen = stack.found[0, above["next"] - 1]
            above["alpha"] = max(above["alpha"], above["best"])


@kernel
def expand(tables: np.void, stack: Stack, ply: int) -> None:
    """List the actions to try in a node.

    These are all legal actions, or captures alone below the depth. There, the seat to move may also stand pat.
    """
    node, game, actions, scores = stack.nodes[ply], stack.games[ply], stack.found[ply], stack.scores[ply]
    board, depth, quiet = game["board"], node["depth"], node["depth"] <= 0
    node["next"] = node["count"] = 0
    node["best"] = node["material"] if quiet else -_INFINITY
    if quiet:
        node["alpha"] = max(node["alpha"], node["material"])
        if node["alpha"] >= node["beta"] or depth <= -_CAPTURES:
            return
    count = legal_moves(tables, game, stack.work[0], actions)
    if not count:
        node["best"] = ply - _MATE
    for j in range(count):
        capture = _WORTH[-board[target(tables, board, actions[j])[1]]]
        if capture or not quiet:
            index = node["count"]
            scores[index] = 16 * capture + gain(tables, board, actions[j]) if ply else one_ply(tables, game, actions[j])
            actions[index] = actions[j]
            node["count"] += 1


@kernel
def pick(stack: Stack, ply: int, begin: int, count: int) -> int:
    """Return the most promising action from ``begin`` on, and put it there."""
    actions, scores, top = stack.found[ply], stack.scores[ply], begin
    for j in range(begin + 1, count):
        if scores[j] > scores[top]:
            top = j
    actions[begin], actions[top] = actions[top], actions[begin]
    scores[begin], scores[top] = scores[top], scores[begin]
    return int(actions[begin])
