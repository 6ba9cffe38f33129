"""From decisions taken down step by step to the shard of a training."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.config import GameConfig
from app.core import FlyballError
from app.games import open_table
from app.play.players import Floats, Player
from app.play.rollout import HERO, Decisions, Outcomes, Rollout, Schedule
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

    def _ordered(self) -> dict[str, NDArray[Any]]:
        """Return every column with its rows in order, each row having been copied once."""
        if not self._decisions:
            raise NoExperience(
                "The hero had no choice in any of these games.", hint="Play more games, or give it more seats."
            )
        game, seat, step = (
            np.concatenate([getattr(part, name) for part in self._decisions]) for name in ("game", "seat", "step")
        )
        place = np.empty(len(game), dtype=np.int64)  # where each row goes
        place[np.lexsort((step, seat, game))] = np.arange(len(game))
        places = np.split(place, np.cumsum([len(part.game) for part in self._decisions])[:-1])
        rows: dict[str, NDArray[Any]] = {}
        for name in (field.name for field in fields(Decisions)):
            first = getattr(self._decisions[0], name)
            rows[name] = np.empty((len(place), *first.shape[1:]), dtype=first.dtype)
            for part, there in zip(self._decisions, places, strict=True):
                rows[name][there] = getattr(part, name)
        return rows


def play_recorded(
    config: GameConfig,
    players: Sequence[Player],
    schedule: Schedule,
    *,
    model: str,
    seed: int,
    worker: str,
    in_flight: int,
    opponents: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _finished: None,
) -> tuple[Shard, Outcomes]:
    """Play a schedule and return the hero's rows. Raises ``NoExperience``.

    Args:
        config: whose game is played, and how it is rewarded.
        players: by the seating's numbers, the hero first.
        schedule: the games.
        model: name of the hero; its hash where it is a model.
        seed: that the schedule was drawn from.
        worker: who plays.
        in_flight: games at once, at most.
        opponents: names of the other players.
        progress: receives the number of finished games.
    """
    recorder = ShardRecorder()
    table = open_table(config, min(len(schedule.seeds), in_flight))
    meta = ShardMeta(
        config_key=config.key,
        rules_version=table.spec.rules_version,
        model=model,
        opponents=tuple(opponents),
        seed=seed,
        worker=worker,
        temperature=schedule.temperatures[HERO],
    )
    outcomes = Rollout(table, players, schedule, recorder, progress).run()
    return recorder.shard(outcomes, meta), outcomes
