"""Generalised advantage estimation (Schulman et al. 2016), for all episodes at once.

An episode is what one seat did in one game, in the order of its steps.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.core import FlyballError

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]


class UnfinishedEpisode(FlyballError):
    """The last row of a seat's game is neither done nor truncated, so what it leads to is unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """Input of advantages: R rows in any order; see ``app.store.Shard`` for their meaning."""

    game: NDArray[np.int32]
    seat: NDArray[np.int8]
    step: NDArray[np.int32]
    reward: Floats
    value: Floats
    done: Flags
    truncated: Flags
    bootstrap: Floats


def advantages(rows: Trajectory, gamma: float, gae_lambda: float) -> Floats:
    """Return the advantage of each row [R], in the rows' own order.

    A row that is done leads nowhere, even if it is marked as truncated too; a truncated row leads to a state worth
    ``bootstrap``; any other row to the seat's next one. Raises ``UnfinishedEpisode``.
    """
    order = np.lexsort((rows.step, rows.seat, rows.game))
    ends = (rows.done | rows.truncated)[order]
    _check_ends(rows, order, ends)
    value = rows.value[order].astype(np.float64)
    following = np.where(ends, np.where(rows.done, 0.0, rows.bootstrap)[order], np.append(value[1:], 0.0))
    estimate = rows.reward[order] + gamma * following - value
    for indices in _layers(ends)[1:]:
        estimate[indices] += gamma * gae_lambda * estimate[indices + 1]
    result = np.empty(len(order), dtype=np.float32)
    result[order] = estimate
    return result


def _check_ends(rows: Trajectory, order: NDArray[np.int64], ends: Flags) -> None:
    game, seat = rows.game[order], rows.seat[order]
    last = np.ones(len(order), dtype=np.bool_)
    last[:-1] = (game[1:] != game[:-1]) | (seat[1:] != seat[:-1])
    open_ends = np.flatnonzero(last & ~ends)
    if len(open_ends):
        first = open_ends[0]
        raise UnfinishedEpisode(
            f"{len(open_ends)} episodes do not end, the first being game {game[first]}, seat {seat[first]}.",
            hint="Mark the last row of every seat as done, or as truncated with the critic's value of what follows.",
        )


def _layers(ends: Flags) -> list[NDArray[np.int64]]:
    """Group sorted rows by their distance from the end of their episode, nearest first."""
    if not len(ends):
        return []
    positions = np.arange(len(ends))
    last = np.flatnonzero(ends)
    distance = last[np.searchsorted(last, positions)] - positions
    by_distance = np.argsort(distance, kind="stable")
    return np.split(by_distance, np.cumsum(np.bincount(distance))[:-1])
