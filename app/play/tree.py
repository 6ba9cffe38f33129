"""Kernels of Gumbel AlphaZero's tree search (Danihelka et al. 2022).

They search many games at once. A tree's nodes are positions, its edges their legal actions. Node 0 is the root. A
simulation descends from the root, and where it leaves the tree, it adds one node, whose value is then counted on each
edge of its path. Edges count values for the seat that chose them, so that seats may follow each other in any order.

At the root, sequential halving divides the simulations among the actions with the largest sums of logit and Gumbel
noise. Below it, selection is deterministic: it keeps the shares of visits near the improved policy. That policy is the
softmax of each action's logit plus its transformed value, where actions without a visit get a mean of the known values.
Without noise the same position always gets the same search.
"""

from math import ceil, exp, expm1, log, log2
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import inlined, kernel
from flyball.app.games.table import FINISHED, Floats, Indices, Mask, Seats

NONE = -1
"""No node: an edge that leaves the tree, or the node above the root."""

Counts = NDArray[np.int32]


NODE = np.dtype(
    [
        ("first", np.int32),  # the node's first edge
        ("edges", np.int32),  # number of its edges, which follow each other
        ("above", np.int32),  # the edge that leads to the node
        ("parent", np.int32),  # the node that this edge comes from; ``NONE`` at the root
    ]
)
EDGE = np.dtype(
    [
        ("action", np.int32),  # number of the action
        ("prior", np.float32),  # log-probability under the network's policy
        ("share", np.float32),  # probability under the network's policy
        ("noise", np.float32),  # Gumbel noise, times its temperature, at the root, else 0
        ("former", np.float32),  # at the root, mean value before the last visit
        ("visits", np.int32),  # number of simulations that took the edge
        ("total", np.float32),  # sum of the values of these visits, for the seat that chooses
        ("child", np.int32),  # the node that the edge leads to, or ``NONE``
    ]
)
"""A record of half a cache line; in separate arrays the fields of an edge would take a cache line each."""


class Trees(NamedTuple):
    """G trees with room for N nodes and E edges; P seats."""

    seat: Seats  # [G, N] to move, or ``FINISHED``
    value: Floats  # [G, N, P] outcome of each seat in [-1, 1], or the network's estimate of it
    node: NDArray[np.void]  # [G, N] of ``NODE``
    edge: NDArray[np.void]  # [G, E] of ``EDGE``
    used: Counts  # [G] edges in use


class Rule(NamedTuple):
    """Parameters of the search."""

    plan: Counts  # [C + 1, S] see ``considered_visits``
    visit_offset: float  # c_visit of the paper: values count as much as after so many visits
    value_scale: float  # c_scale of the paper: weight of a value in [0, 1] beside a logit, per visit
    temperature: float  # of the noise; 0 means no noise


def plant(games: int, nodes: int, edges: int, seats: int) -> Trees:
    """Return trees without nodes."""
    trees = Trees(
        seat=np.full((games, nodes), FINISHED, dtype=np.int8),
        value=np.zeros((games, nodes, seats), dtype=np.float32),
        node=np.zeros((games, nodes), dtype=NODE),
        edge=np.empty((games, edges), dtype=EDGE),
        used=np.zeros(games, dtype=np.int32),
    )
    trees.node["parent"] = NONE
    return trees


def with_room(trees: Trees, mask: Mask) -> Trees:
    """Return trees, or larger copies, with room for one more node in each; ``mask`` [K, A] has its legal actions."""
    nodes, edges = trees.seat.shape[1], trees.edge.shape[1]
    if nodes * mask.shape[1] <= edges:
        return trees
    needed = int(mask.sum(axis=1).max())
    if int(trees.used.max()) + needed <= edges:
        return trees
    more = np.empty((len(trees.used), max(needed, edges)), dtype=EDGE)
    return trees._replace(edge=np.concatenate((trees.edge, more), axis=1))


def considered_visits(considered: int, simulations: int) -> Counts:
    """Return the plan of sequential halving [C + 1, S].

    Row c is the plan for c actions to try. Its entry s is the number of visits of the action that simulation s has to
    try. After each phase, the better half of the actions goes on.
    """
    plan = np.zeros((considered + 1, simulations), dtype=np.int32)
    for actions in range(1, considered + 1):
        plan[actions] = _halving(actions, simulations)
    return plan


def _halving(actions: int, simulations: int) -> list[int]:
    if actions == 1:
        return list(range(simulations))
    plan, visits, left = list[int](), [0] * actions, actions
    while len(plan) < simulations:
        for _ in range(max(1, int(simulations / (ceil(log2(actions)) * left)))):
            plan += visits[:left]
            visits = [visit + (number < left) for number, visit in enumerate(visits)]
        left = max(2, left // 2)
    return plan[:simulations]


class Leaves(NamedTuple):
    """Nodes and edges by which simulations leave K of the trees."""

    games: Indices  # [K] numbers of the trees
    nodes: Indices  # [K] last node of the path in the tree
    edges: Counts  # [K] edges by which the simulations leave
    actions: Counts  # [K] actions of these edges


class Positions(NamedTuple):
    """Positions of K trees; A actions."""

    games: Indices  # [K] numbers of the trees
    seats: Seats  # [K] to move
    logits: Floats  # [K, A or more]
    values: Floats  # [K, P] estimated outcome of each seat
    mask: Mask  # [K, A] legal actions
    noise: Floats  # [K, A] Gumbel noise; [K, 0] for none


@kernel
def grow(trees: Trees, node: int, positions: Positions) -> None:
    """Fill node ``node`` in some trees, which need room for its edges: all legal actions."""
    games, seats, logits, values, mask, noise = positions
    actions = mask.shape[1]
    for k in range(len(games)):
        game = games[k]
        begin = end = trees.used[game]
        top = np.float32(-np.inf)
        for action in range(actions):
            if mask[k, action]:
                edge = trees.edge[game, end]
                edge["action"], edge["prior"] = action, logits[k, action]
                edge["noise"] = noise[k, action] if noise.shape[1] else 0.0
                edge["visits"], edge["total"], edge["child"] = 0, 0.0, NONE
                top = max(top, logits[k, action])
                end += 1
        total = np.float32(0)
        for edge in trees.edge[game, begin:end]:
            edge["share"] = exp(edge["prior"] - top)
            total += edge["share"]
        for edge in trees.edge[game, begin:end]:
            edge["prior"] -= top + log(total)
            edge["share"] /= total
        trees.used[game] = end
        trees.node[game, node]["first"], trees.node[game, node]["edges"] = begin, end - begin
        trees.seat[game, node], trees.value[game, node] = seats[k], values[k]


@kernel
def close(trees: Trees, node: int, games: Indices, seats: Seats, returns: Floats) -> Indices:
    """Give a node the outcomes [K, P] of finished games; return the indices into ``games`` [K] of the others."""
    going, count = np.empty(len(games), dtype=np.int64), 0
    for k in range(len(games)):
        if seats[k] == FINISHED:
            trees.value[games[k], node] = returns[k]
        else:
            going[count] = k
            count += 1
    return going[:count]


@kernel
def zero_sum(values: Floats, seats: Seats) -> Floats:
    """Return both seats' values [K, 2] from the moving seats' values [K]. Values are limited to [-1, 1]."""
    both = np.empty((len(seats), 2), dtype=np.float32)
    for k in range(len(seats)):
        own = min(max(values[k], np.float32(-1)), np.float32(1))
        both[k, seats[k]], both[k, 1 - seats[k]] = own, -own
    return both


@kernel
def descend(trees: Trees, simulation: int, rule: Rule) -> Leaves:
    """Return the leaves where a simulation leaves the trees; one that ends a game only counts its value."""
    count, games = 0, len(trees.used)
    leaves = Leaves(
        np.empty(games, dtype=np.int64),
        np.empty(games, dtype=np.int64),
        np.empty(games, dtype=np.int32),
        np.empty(games, dtype=np.int32),
    )
    logits = np.empty(trees.node["edges"].max(), dtype=np.float32)
    for game in range(games):
        node = 0
        number = _root_choice(trees, game, simulation, rule, logits)
        edge = trees.edge[game, number]
        edge["former"] = edge["total"] / max(1, edge["visits"])
        while edge["child"] != NONE:
            node = edge["child"]
            if trees.seat[game, node] == FINISHED:
                break
            number = _inner_choice(trees, game, node, rule, logits)
            edge = trees.edge[game, number]
        if edge["child"] == NONE:
            leaves.games[count], leaves.nodes[count], leaves.edges[count] = game, node, number
            leaves.actions[count] = edge["action"]
            count += 1
        else:
            _count(trees, game, node)
    return Leaves(leaves.games[:count], leaves.nodes[:count], leaves.edges[:count], leaves.actions[:count])


@kernel
def attach(trees: Trees, node: int, leaves: Leaves) -> None:
    """Link a new node to each leaf, and count its value. The node has the same number in all trees."""
    for k in range(len(leaves.games)):
        game, edge = leaves.games[k], leaves.edges[k]
        trees.node[game, node]["parent"], trees.node[game, node]["above"] = leaves.nodes[k], edge
        trees.edge[game, edge]["child"] = node
        _count(trees, game, node)


@inlined
def _count(trees: Trees, game: int, node: int) -> None:
    """Count a node's value on each edge of its path."""
    below = node
    while trees.node[game, below]["parent"] != NONE:
        above, edge = trees.node[game, below]["parent"], trees.edge[game, trees.node[game, below]["above"]]
        edge["visits"] += 1
        edge["total"] += trees.value[game, node, trees.seat[game, above]]
        below = above


@inlined
def _scale(rule: Rule, most: int) -> np.float32:
    """Return the weight of values in the improved policy; ``most`` is the largest number of an action's visits."""
    # Values are in [-1, 1], and the paper's in [0, 1].
    return np.float32((rule.visit_offset + most) * rule.value_scale / 2)


@inlined
def _improve(trees: Trees, game: int, node: int, rule: Rule, logits: Floats) -> float:
    """Write the improved policy's ``logits``, one for each of the node's edges; return the node's mixed value."""
    begin, count = trees.node[game, node]["first"], trees.node[game, node]["edges"]
    visits, most, tried_share, weighted = 0, 0, np.float32(0), np.float32(0)
    for number in range(begin, begin + count):
        edge = trees.edge[game, number]
        edge_visits = edge["visits"]
        if edge_visits:
            visits += edge_visits
            most = max(most, edge_visits)
            tried_share += edge["share"]
            weighted += edge["share"] * edge["total"] / np.float32(edge_visits)
    mixed = trees.value[game, node, trees.seat[game, node]]
    if visits:
        mixed = (mixed + np.float32(visits) * weighted / max(tried_share, np.float32(1e-30))) / np.float32(1 + visits)
    scale = _scale(rule, most)
    for offset in range(count):
        edge = trees.edge[game, begin + offset]
        value = edge["total"] / np.float32(edge["visits"]) if edge["visits"] else mixed
        logits[offset] = edge["prior"] + scale * value
    return mixed  # type: ignore[no-any-return]  # a number of an array


@inlined
def _root_choice(trees: Trees, game: int, simulation: int, rule: Rule, logits: Floats) -> int:
    """Return the root's edge to try: the best of those with as many visits as the plan says."""
    _improve(trees, game, 0, rule, logits)
    begin, count = trees.node[game, 0]["first"], trees.node[game, 0]["edges"]
    planned_visits, best, chosen = rule.plan[min(len(rule.plan) - 1, count), simulation], np.float32(-np.inf), begin
    for offset in range(count):
        edge = trees.edge[game, begin + offset]
        score = logits[offset] + edge["noise"]
        if edge["visits"] == planned_visits and score > best:
            best, chosen = score, begin + offset
    return chosen  # type: ignore[no-any-return]  # a number of an array


@inlined
def _inner_choice(trees: Trees, game: int, node: int, rule: Rule, logits: Floats) -> int:
    """Return the edge whose share of the visits is farthest below its share of the improved policy."""
    _improve(trees, game, node, rule, logits)
    begin, count = trees.node[game, node]["first"], trees.node[game, node]["edges"]
    top, total, visits = np.float32(-np.inf), np.float32(0), 1
    for offset in range(count):
        top = max(top, logits[offset])
    for offset in range(count):
        logits[offset] = exp(logits[offset] - top)
        total += logits[offset]
        visits += trees.edge[game, begin + offset]["visits"]
    best, chosen = np.float32(-np.inf), begin
    for offset in range(count):
        score = logits[offset] / total - np.float32(trees.edge[game, begin + offset]["visits"]) / np.float32(visits)
        if score > best:
            best, chosen = score, begin + offset
    return chosen  # type: ignore[no-any-return]  # a number of an array


@kernel
def conclude(trees: Trees, rule: Rule, policy: Floats) -> tuple[Counts, Floats, Floats]:
    """Return each tree's action, its log-probability and the root's value [G].

    The action is the best of those with the most visits. ``policy`` [G, A] is filled with the root's improved policy.
    The value is the improved policy's mean. The probability is an upper bound given the other actions' noise: that the
    action's own noise lifts it above the untried actions, then above those that lack the last visit, and at the end
    above the others with the most visits. The improved policy's share is no such bound, because of the halving and the
    temperature: probable moves can have a tiny one.
    """
    games = len(trees.used)
    actions, log_probs = np.empty(games, dtype=np.int32), np.empty(games, dtype=np.float32)
    values, logits = np.empty(games, dtype=np.float32), np.empty(trees.node["edges"].max(), dtype=np.float32)
    for game in range(games):
        mixed = _improve(trees, game, 0, rule, logits)
        begin, count = trees.node[game, 0]["first"], trees.node[game, 0]["edges"]
        top, total, most = logits[:count].max(), 0.0, 0
        for offset in range(count):
            total += exp(logits[offset] - top)
            most = max(most, trees.edge[game, begin + offset]["visits"])
        scale = _scale(rule, most - 1)
        best, rival, late, untried, chosen, value = -np.inf, -np.inf, -np.inf, -np.inf, 0, 0.0
        for offset in range(count):
            edge = trees.edge[game, begin + offset]
            visits, share = edge["visits"], exp(logits[offset] - top) / total
            policy[game, edge["action"]] = share
            value += share * (edge["total"] / visits if visits else mixed)
            score = logits[offset] + edge["noise"]
            bare = edge["prior"] + edge["noise"]
            if not visits:
                untried = max(untried, bare)
            elif visits == most - 1:
                late = max(late, bare + scale * edge["total"] / visits)
            elif visits == most:
                rival = max(rival, min(best, score))
                if score > best:
                    best, chosen = score, offset
        edge = trees.edge[game, begin + chosen]
        actions[game] = edge["action"]
        needed = max(rival - logits[chosen], late - edge["prior"] - scale * edge["former"], untried - edge["prior"])
        log_probs[game] = _log_tail(needed / rule.temperature) if rule.temperature else 0.0
        values[game] = value
    return actions, log_probs, values


@inlined
def _log_tail(point: float) -> float:
    """Return the log-probability that Gumbel noise exceeds a point."""
    return -point if point > 30 else log(-expm1(-exp(min(-point, 30.0))))
