"""Tree search by random playouts in Shogi and minishogi.

It is UCT with proven values, and equals OpenSpiel's ``MCTSBot`` move for move, by our own rules. OpenSpiel's search
cannot judge our games: OpenSpiel has no minishogi, and ends some games of Shogi that go on by our rules
(``flyball.app.games.shogi.parity``).

Sources: L. Kocsis and C. Szepesvari, "Bandit based Monte-Carlo Planning" (2006); M. H. M. Winands et al., "Monte-Carlo
Tree Search Solver" (2008).
"""

from collections.abc import Sequence
from math import log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import inlined, kernel
from flyball.app.games.shogi.replay import Replay
from flyball.app.games.shogi.rules import POSITION, WORKSPACE, Lists, Position, play, settle
from flyball.app.games.shogi.table import ShogiRules
from flyball.app.games.shogi.variant import MOST_LEGAL
from flyball.app.games.table import FINISHED

_MOST_EDGES = 10_000_000
"""Most edges of a tree, 180 MB. In a full tree, playouts begin at its leaves."""

_OPEN = 2
"""Value of ``Tree.proven`` for an outcome that is not proven."""

_ROOT = 0
"""The edge that leads to the root."""


class PlayoutSearch:
    """Player that chooses moves by a tree search with random playouts.

    Each move has a new tree and ``playouts`` playouts. ``exploration`` is the constant c of UCT. A game that reaches
    the limit of ``max_moves`` counts as drawn.
    """

    def __init__(self, rules: ShogiRules, max_moves: int, playouts: int, exploration: float) -> None:
        self._rules, self._limit, self._playouts, self._exploration = rules, max_moves, playouts, exploration

    def move(self, history: Sequence[int], seed: int) -> int:
        """Return an action after a history. Both have the numbers of the seats to move."""
        numbers, game = self._rules.numbering, Replay(self._rules.variant, limit=self._limit)
        for number in history:
            game.play(int(numbers.action[number]))
        return int(numbers.number[best_move(game, self._playouts, self._exploration, seed)])


def best_move(game: Replay, playouts: int, exploration: float, seed: int) -> int:
    """Return the action that a search from an unfinished game finds. The action has the variant's number."""
    tables, lists = game.variant.tables, Lists(game.lists.moves.copy(), game.lists.keys.copy(), game.lists.legal.copy())
    state = np.array([seed], dtype=np.uint64)
    return int(_best_action(tables, game.position, lists, (playouts, exploration), state))


class Tree(NamedTuple):
    """E edges of a tree. The edges of a node follow each other, in random order; ``_ROOT`` leads to the root."""

    action: NDArray[np.uint16]  # [E]
    chooser: NDArray[np.int8]  # [E] the seat that plays the action
    first: NDArray[np.int32]  # [E] first edge of the node that the edge leads to
    edges: NDArray[np.int16]  # [E] number of these edges; 0: not expanded
    visits: NDArray[np.int32]  # [E]
    total: NDArray[np.int32]  # [E] sum of the visits' outcomes for the chooser: 1 a win, -1 a loss
    proven: NDArray[np.int8]  # [E] outcome for the chooser by best play, or ``_OPEN``
    used: NDArray[np.int64]  # [1] number of edges in use


@kernel
def _best_action(
    tables: np.void, position: Position, lists: Lists, uct: tuple[int, float], state: NDArray[np.uint64]
) -> int:
    """Return the best action of a position.

    ``uct`` is the number of playouts and the constant of exploration. ``lists`` are those of the position's game, and
    are overwritten from the position on.
    """
    playouts, exploration = uct
    room = min(_MOST_EDGES, (playouts + 1) * MOST_LEGAL)
    tree = Tree(
        np.empty(room, dtype=np.uint16),
        np.zeros(room, dtype=np.int8),
        np.empty(room, dtype=np.int32),
        np.zeros(room, dtype=np.int16),
        np.zeros(room, dtype=np.int32),
        np.zeros(room, dtype=np.int32),
        np.full(room, _OPEN, dtype=np.int8),
        np.array([_ROOT + 1]),
    )
    games, work = np.zeros(2, dtype=POSITION), np.zeros(1, dtype=WORKSPACE)[0]
    games[0] = position
    game, path = games[1], np.zeros(lists.moves.shape[1] + 1, dtype=np.int32)
    _expand(tree, _ROOT, games[0], lists, state)
    for _ in range(playouts):
        games[1] = games[0]
        edge, depth = _ROOT, 0
        while not game["over"] and tree.visits[edge]:
            if not tree.edges[edge]:
                if tree.used[0] + game["legal"] > room:
                    break
                _expand(tree, edge, game, lists, state)
            edge = _select(tree, edge, exploration)
            play(tables, game, lists, 0, int(tree.action[edge]))
            settle(tables, game, lists, 0, work)
            depth += 1
            path[depth] = edge
        if game["over"]:
            tree.proven[edge] = _outcome(game["winner"], tree.chooser[edge])
        while not game["over"]:
            play(tables, game, lists, 0, int(lists.legal[0, _draw(state, game["legal"])]))
            settle(tables, game, lists, 0, work)
        _backpropagate(tree, path[: depth + 1], game["winner"])
        if tree.proven[_ROOT] != _OPEN:
            break
    return int(tree.action[_move_edge(tree)])


@kernel
def _expand(tree: Tree, edge: int, game: Position, lists: Lists, state: NDArray[np.uint64]) -> None:
    """Add a game's legal actions to the tree, below an edge. The tree needs room for them."""
    begin = tree.used[0]
    tree.first[edge], tree.edges[edge] = begin, game["legal"]
    for k in range(game["legal"]):
        other = begin + _draw(state, k + 1)  # shuffled, because untried edges are tried in their order
        tree.action[begin + k] = tree.action[other]
        tree.action[other] = lists.legal[0, k]
        tree.chooser[begin + k] = game["seat"]
    tree.used[0] += game["legal"]


@inlined
def _select(tree: Tree, edge: int, exploration: float) -> int:
    """Return the first unvisited edge below another, otherwise the one of the largest proven outcome or UCT bound."""
    best, chosen, log_visits = -np.inf, -1, log(tree.visits[edge])
    for below in range(tree.first[edge], tree.first[edge] + tree.edges[edge]):
        visits = tree.visits[below]
        if tree.proven[below] != _OPEN:
            bound = float(tree.proven[below])
        elif not visits:
            return below
        else:
            bound = tree.total[below] / visits + exploration * sqrt(log_visits / visits)
        if bound > best:
            best, chosen = bound, below
    return chosen


@kernel
def _backpropagate(tree: Tree, path: NDArray[np.int32], winner: int) -> None:
    """Add a game's outcome to the edges of its path, and prove what follows from a proven last edge."""
    sure = tree.proven[path[-1]] != _OPEN
    for edge in path[::-1]:
        tree.visits[edge] += 1
        tree.total[edge] += _outcome(winner, tree.chooser[edge])
        if sure and tree.proven[edge] == _OPEN:
            tree.proven[edge] = _proof(tree, edge)
            sure = tree.proven[edge] != _OPEN


@inlined
def _outcome(winner: int, seat: int) -> int:
    """Return the outcome of a game for a seat."""
    return 0 if winner == FINISHED else 1 if winner == seat else -1


@kernel
def _proof(tree: Tree, edge: int) -> int:
    """Return the outcome of an edge that follows from the edges below it, or ``_OPEN``."""
    begin, best, all_proven = tree.first[edge], -1, True
    for below in range(begin, begin + tree.edges[edge]):
        if tree.proven[below] == _OPEN:
            all_proven = False
        else:
            best = max(best, tree.proven[below])
    if not all_proven and best < 1:
        return _OPEN
    return int(best if tree.chooser[edge] == tree.chooser[begin] else -best)


@kernel
def _move_edge(tree: Tree) -> int:
    """Return the root's edge to play: by proven outcome (0 if open), then by visits, then by total."""
    begin, chosen = tree.first[_ROOT], tree.first[_ROOT]
    for edge in range(begin, begin + tree.edges[_ROOT]):
        sure = tree.proven[edge] if tree.proven[edge] != _OPEN else 0
        best = tree.proven[chosen] if tree.proven[chosen] != _OPEN else 0
        if (sure, tree.visits[edge], tree.total[edge]) > (best, tree.visits[chosen], tree.total[chosen]):
            chosen = edge
    return int(chosen)


@inlined
def _draw(state: NDArray[np.uint64], count: int) -> int:
    """Return a random number below ``count``. Source: SplitMix64 (Steele, Lea and Flood 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    mixed = state[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return int((mixed >> np.uint64(11)) * 2.0**-53 * count)
