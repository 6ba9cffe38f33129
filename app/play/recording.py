"""Recording: collect decisions step by step into a shard for training."""

from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball.app.core import FlyballError
from flyball.app.core.legal import Legal, LegalActions, join, legal_counts, listed_places
from flyball.app.games import Observations
from flyball.app.games.table import Floats
from flyball.app.store import Shard, ShardMeta

Indices = NDArray[np.int64]


class NoExperience(FlyballError):
    """The hero had no decision to make in any game."""


def step_rewards(earned: Floats, last: NDArray[np.bool_], outcome: Floats) -> Floats:
    """Return the reward of each row [R].

    The rewards of an episode sum to its outcome.

    Args:
        earned: [R] earnings of the seat before each decision. Earnings before the first decision are added to the
            last reward, because no decision earned them.
        last: [R] marks the last row of each episode; an episode's rows are consecutive.
        outcome: [R] the episode's outcome, repeated on each of its rows.
    """
    ends = np.flatnonzero(last)
    starts = np.append(0, ends[:-1] + 1)
    reward = np.append(earned[1:], np.float32(0)) - earned
    reward[ends] = outcome[ends] - (earned[ends] - earned[starts])
    return reward


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """One player's decisions in one step, each in another game.

    K rows; see ``flyball.app.store.Shard`` for the columns.
    """

    game: NDArray[np.int32]
    seat: NDArray[np.int8]
    step: NDArray[np.int32]
    obs: Observations
    mask: Legal
    action: NDArray[np.int32]
    log_prob: Floats
    value: Floats
    earned: Floats  # part of the outcome that the seat had earned before the decision
    policy: NDArray[np.float16] | None = None  # improved policy of a search, laid out as in ``Shard.policy``


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Results of G games."""

    returns: NDArray[np.float32]  # [G, P] outcomes
    truncated: NDArray[np.bool_]  # [G] games cut off
    lengths: Indices  # [G] decisions, forced moves not counted
    openings: Indices  # [G] random decisions among them, the first ones
    histories: list[list[int]]  # all actions of each game, chance included


class ShardRecorder:
    """Collects the hero's rows into a shard."""

    def __init__(self) -> None:
        self._decisions: list[Decisions] = []
        self._bootstraps: dict[tuple[int, int], float] = {}

    def decided(self, decisions: Decisions) -> None:
        """Add the hero's rows of one step."""
        self._decisions.append(decisions)

    def cut_off(self, game: int, seats: NDArray[np.int8], values: Floats) -> None:
        """Add the critic's values of a truncated game. ``values`` has one value for each of the hero's ``seats``."""
        self._bootstraps.update({(game, int(seat)): float(v) for seat, v in zip(seats, values, strict=True)})

    def shard(self, outcomes: Outcomes, meta: ShardMeta) -> Shard:
        """Return the rows as a shard. Raises ``NoExperience``.

        The rows are ordered by game, seat and step, with the rewards of ``step_rewards``. The last row of an episode is
        ``done``. In a truncated game it is ``truncated`` instead, and its ``bootstrap`` is the critic's value.
        """
        rows = self._ordered_columns()
        earned = rows.pop("earned")
        game, seat = rows["game"], rows["seat"]
        last = np.ones(len(game), dtype=np.bool_)
        last[:-1] = (game[1:] != game[:-1]) | (seat[1:] != seat[:-1])
        truncated = last & outcomes.truncated[game]
        bootstrap = np.zeros(len(game), dtype=np.float32)
        for row in np.flatnonzero(truncated).tolist():
            bootstrap[row] = self._bootstraps[int(game[row]), int(seat[row])]
        offsets = np.cumsum([0, *map(len, outcomes.histories)], dtype=np.int64)
        return Shard(
            **rows,
            reward=step_rewards(earned, last, outcomes.returns[game, seat]),
            done=last & ~truncated,
            truncated=truncated,
            bootstrap=bootstrap,
            returns=outcomes.returns,
            history=np.fromiter(chain.from_iterable(outcomes.histories), dtype=np.int32, count=int(offsets[-1])),
            history_offsets=offsets,
            meta=meta,
        )

    def _ordered_columns(self) -> dict[str, Any]:
        """Return every column sorted by game, seat and step. Each row is copied only once. Raises ``NoExperience``."""
        if not self._decisions:
            raise NoExperience(
                "The hero had no choice in any of these games.", hint="Play more games, or give it more seats."
            )
        game, seat, step = (
            np.concatenate([getattr(part, name) for part in self._decisions]) for name in ("game", "seat", "step")
        )
        order = np.lexsort((step, seat, game))
        target = np.empty(len(game), dtype=np.int64)  # sorted position of each row
        target[order] = np.arange(len(game))
        targets = np.split(target, np.cumsum([len(part.game) for part in self._decisions])[:-1])
        rows: dict[str, Any] = {}
        for name in (field.name for field in fields(Decisions)):
            first = getattr(self._decisions[0], name)
            if name == "policy":
                rows[name] = None if first is None else self._policy(order)
                continue
            if isinstance(first, LegalActions):
                rows[name] = join([part.mask for part in self._decisions])[order]
                continue
            rows[name] = np.empty((len(target), *first.shape[1:]), dtype=first.dtype)
            for part, part_targets in zip(self._decisions, targets, strict=True):
                rows[name][part_targets] = getattr(part, name)
        return rows

    def _policy(self, order: Indices) -> NDArray[np.float16]:
        """Return the search policies of the rows in ``order``."""
        policies = [part.policy for part in self._decisions if part.policy is not None]
        counts = np.concatenate([legal_counts(part.mask) for part in self._decisions])
        return np.concatenate(policies)[listed_places(counts, order)]
