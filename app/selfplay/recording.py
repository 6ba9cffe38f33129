"""From decisions taken down step by step to the shard of a training."""

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core import FlyballError
from app.selfplay.players import Floats
from app.selfplay.rollout import Decisions, Outcomes
from app.store import Shard, ShardMeta


class NoExperience(FlyballError):
    """Games in which the hero had nothing to decide."""


def step_rewards(earned: Floats, last: NDArray[np.bool_], outcome: Floats) -> Floats:
    """Return the reward of each row [R], so that those of an episode sum to its outcome.

    Args:
        earned: [R] what the seat had earned before each decision. What it had before its first is no consequence of
            any decision, and is left to the end.
        last: [R] the last rows of the episodes, whose rows follow each other.
        outcome: [R] of each row's episode.
    """
    ends = np.flatnonzero(last)
    starts = np.append(0, ends[:-1] + 1)
    reward = np.append(earned[1:], np.float32(0)) - earned
    reward[ends] = outcome[ends] - (earned[ends] - earned[starts])
    return reward


class ShardRecorder:
    """Collects the hero's rows; see ``Recorder``."""

    def __init__(self) -> None:
        self._decisions: list[Decisions] = []
        self._bootstraps: dict[tuple[int, int], float] = {}

    def decided(self, decisions: Decisions) -> None:
        """See ``Recorder.decided``."""
        self._decisions.append(decisions)

    def cut_off(self, game: int, seats: NDArray[np.int8], values: Floats) -> None:
        """See ``Recorder.cut_off``."""
        self._bootstraps.update({(game, int(seat)): float(v) for seat, v in zip(seats, values, strict=True)})

    def shard(self, outcomes: Outcomes, meta: ShardMeta) -> Shard:
        """Return the rows ordered by game, seat and step, each rewarded with what was earned until the next.

        The last row of an episode leads to its outcome. An episode that was cut off has none yet; its last row is
        ``truncated`` and bootstrapped by the critic. Raises ``NoExperience``.
        """
        rows = self._ordered()
        earned = rows.pop("earned")
        game, seat = rows["game"], rows["seat"]
        last = np.ones(len(game), dtype=np.bool_)
        last[:-1] = (game[1:] != game[:-1]) | (seat[1:] != seat[:-1])
        truncated = last & outcomes.truncated[game]
        bootstrap = np.zeros(len(game), dtype=np.float32)
        for row in np.flatnonzero(truncated).tolist():
            bootstrap[row] = self._bootstraps[int(game[row]), int(seat[row])]
        return Shard(
            **rows,
            reward=step_rewards(earned, last, outcomes.returns[game, seat]),
            done=last & ~truncated,
            truncated=truncated,
            bootstrap=bootstrap,
            returns=outcomes.returns,
            history=np.array([action for history in outcomes.histories for action in history], dtype=np.int32),
            history_offsets=np.cumsum([0, *map(len, outcomes.histories)], dtype=np.int64),
            meta=meta,
        )

    def _ordered(self) -> dict[str, NDArray[Any]]:
        if not self._decisions:
            raise NoExperience(
                "The hero had no choice in any of these games.", hint="Play more games, or give it more seats."
            )
        names = [field.name for field in fields(Decisions)]
        rows = {name: np.concatenate([getattr(part, name) for part in self._decisions]) for name in names}
        order = np.lexsort((rows["step"], rows["seat"], rows["game"]))
        return {name: column[order] for name, column in rows.items()}
