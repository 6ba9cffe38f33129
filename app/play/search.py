"""Players that search: a network's policy improved by tree search. See ``flyball.app.play.tree`` for the search."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball.app.config import GameConfig
from flyball.app.core import FlyballError
from flyball.app.games import Table, TableSpec, open_table
from flyball.app.games.table import Floats, Indices, Seats
from flyball.app.play.output_cache import OutputCache, PositionNetwork
from flyball.app.play.own_players import DecidingPlayer, Points, Turn
from flyball.app.play.rng import draw_points
from flyball.app.play.tree import (
    Positions,
    Rule,
    Trees,
    attach,
    close,
    conclude,
    considered_visits,
    descend,
    grow,
    plant,
    with_room,
    zero_sum,
)

TREES = 1024  # trees searched at once: many, because a forward pass for few costs as much as one for hundreds
POSITIONS = 1 << 18  # in all trees searched at once: a position takes a few kilobytes where many moves are legal
_EDGES = 64  # new trees have room for at most this many edges a node; ``with_room`` adds more


class Unsearchable(FlyballError, code="usage"):
    """A game that cannot be searched: it has chance or hidden information, or its table cannot copy games."""


def check_searchable(config: GameConfig, spec: TableSpec) -> None:
    """Raise ``Unsearchable`` for a configuration whose games cannot be searched."""
    if not spec.searchable:
        raise Unsearchable(
            f"{config.game!r} cannot be searched: it has chance or hidden information, or cannot be copied.",
            hint="Play it without search: set backend = 'policy_gradient'.",
        )


class Found(NamedTuple):
    """Results of the searches of K positions."""

    action: NDArray[np.int32]  # [K]
    log_prob: Floats  # [K] of the action, given the others' noise; see ``flyball.app.play.tree.conclude``
    value: Floats  # [K] of the position for the seat to move, by the improved policy
    policy: Floats  # [K, A] the improved policy


class Weighed(NamedTuple):
    """An action of a searched position."""

    action: int
    visits: int
    value: float  # mean of its visits, for the seat to move
    probability: float  # under the improved policy


class SearchPlayer(DecidingPlayer):
    """Plays the best move that a search of ``simulations`` positions finds.

    The temperature scales the Gumbel noise of the root. At 1, as in self-play, actions are drawn about as often as the
    improved policy chooses them; at 0 the same position always gets the same move. Raises ``Unsearchable``.
    """

    def __init__(
        self, network: PositionNetwork, config: GameConfig, simulations: int, temperature: float = 0.0
    ) -> None:
        self.network, self._config, settings = network, config, config.search
        self._outputs = OutputCache(network).outputs
        plan = considered_visits(settings.considered, simulations)
        value_scale = settings.value_scale if temperature else settings.playing_value_scale
        self._rule = Rule(plan, settings.visit_offset, value_scale, temperature)
        self._nodes = simulations + 1  # with the root
        self._table: Table = open_table(config, 0)
        check_searchable(config, self._table.spec)
        self._seats = config.players

    def decide(self, turn: Turn, points: Points) -> NDArray[np.int32]:
        """See ``DecidingPlayer.decide``."""
        return self.search(turn, points).action

    def search(self, turn: Turn, points: Points) -> Found:
        """Search the K positions of a turn. ``points`` [K] in [0, 1) determine the noise."""
        trees, parts = max(1, min(TREES, POSITIONS // self._nodes)), []
        for begin in range(0, len(points), trees):
            rows = slice(begin, begin + trees)
            part = Turn(turn.obs[rows], turn.mask[rows], turn.table, turn.slots[rows])
            parts.append(self._conclude(self._trees(part, points[rows]), turn.mask.shape[1]))
        return parts[0] if len(parts) == 1 else Found(*map(np.concatenate, zip(*parts, strict=True)))

    def weigh(self, turn: Turn) -> tuple[float, list[Weighed]]:
        """Search the one position of a turn; return its value, and the visited actions by falling visits."""
        trees = self._trees(turn, np.zeros(1))
        found, root = self._conclude(trees, turn.mask.shape[1]), trees.node[0, 0]
        edges = trees.edge[0, root["first"] : root["first"] + root["edges"]]
        visited = sorted(edges[edges["visits"] > 0], key=lambda edge: -int(edge["visits"]))
        weighed = [
            Weighed(action, int(edge["visits"]), float(edge["total"] / edge["visits"]), float(found.policy[0, action]))
            for edge in visited
            for action in [int(edge["action"])]
        ]
        return float(found.value[0]), weighed

    def _conclude(self, trees: Trees, actions: int) -> Found:
        policy = np.zeros((len(trees.used), actions), dtype=np.float32)
        return Found(*conclude(trees, self._rule, policy), policy)

    def _trees(self, turn: Turn, points: Points) -> Trees:
        """Return the grown trees of a turn's positions, for which there has to be room."""
        count, nodes, (obs, mask, source, slots) = len(points), self._nodes, turn
        table = self._table_of(count * nodes)
        roots, nothing = np.arange(count) * nodes, np.zeros((0, 0), dtype=np.float32)
        table.copy_from(source, slots, roots)
        trees = plant(count, nodes, nodes * min(mask.shape[1], _EDGES), self._seats)
        temperature = self._rule.temperature
        noise = temperature * _gumbel(points, mask.shape[1]) if temperature else nothing
        trees = self._grow(trees, 0, np.arange(count), Turn(obs, mask, table, roots), noise)
        for node in range(1, nodes):
            leaves = descend(trees, node - 1, self._rule)
            if not len(leaves.games):
                continue
            games = leaves.games
            targets = roots[games] + node
            seats, returns = table.branch(roots[games] + leaves.nodes, leaves.actions, targets)
            going = close(trees, node, games, seats, returns)
            if len(going):
                targets = targets[going]
                trees = self._grow(trees, node, games[going], Turn(*table.observe(targets), table, targets), nothing)
            attach(trees, node, leaves)
        return trees

    def _grow(self, trees: Trees, node: int, games: Indices, turn: Turn, noise: Floats) -> Trees:
        """Fill node ``node`` in trees ``games`` [K] with a turn's positions; return the trees, or larger copies."""
        outputs, seats = self._outputs(turn.obs), turn.table.seats()[turn.slots]
        trees = with_room(trees, turn.mask)
        grow(trees, node, Positions(games, seats, outputs, self._values(outputs, seats, turn), turn.mask, noise))
        return trees

    def _values(self, outputs: Floats, seats: Seats, turn: Turn) -> Floats:
        """Return each seat's estimated outcome [K, P], summing to 0; with more than two seats, from its own view."""
        if self._seats == 2:
            return zero_sum(outputs[:, -1], seats)
        views = [turn.table.view(turn.slots, np.full(len(seats), seat, dtype=np.int8)) for seat in range(self._seats)]
        values = np.stack([self._outputs(view)[:, -1] for view in views], axis=1)
        return np.asarray(np.clip(values - values.mean(axis=1, keepdims=True), -1, 1), dtype=np.float32)

    def _table_of(self, slots: int) -> Table:
        """Return a table with at least ``slots`` slots: the same one as long as it is large enough."""
        if len(self._table.seats()) < slots:
            self._table = open_table(self._config, slots)
        return self._table


def _gumbel(points: Points, actions: int) -> Floats:
    """Return Gumbel noise [K, A] drawn from ``points`` [K]."""
    streams = np.repeat((points * 2.0**53).astype(np.uint64), actions)
    drawn = draw_points(streams, np.tile(np.arange(actions), len(points)))
    return (-np.log(-np.log(np.maximum(drawn, 2.0**-54)))).astype(np.float32).reshape(-1, actions)
