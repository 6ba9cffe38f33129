"""Games played and recorded: a shard, and how they ended."""

from collections.abc import Callable, Sequence

from app.config import GameConfig
from app.games import open_table
from app.selfplay.players import Player
from app.selfplay.recording import ShardRecorder
from app.selfplay.rollout import Outcomes, Rollout, Schedule
from app.store import Shard, ShardMeta


def play_recorded(
    config: GameConfig,
    players: Sequence[Player],
    schedule: Schedule,
    meta: ShardMeta,
    *,
    in_flight: int,
    progress: Callable[[int], None] = lambda _finished: None,
) -> tuple[Shard, Outcomes]:
    """Play a schedule with at most ``in_flight`` games at once; ``progress`` hears how many have ended.

    Raises ``NoExperience``.
    """
    recorder = ShardRecorder()
    table = open_table(config, min(len(schedule.seeds), in_flight))
    outcomes = Rollout(table, players, schedule, recorder, progress).run()
    return recorder.shard(outcomes, meta), outcomes
