"""Games of one player in every seat, to be learned from by others."""

from collections.abc import Iterator

from app.config import GameConfig
from app.core import derive_seed
from app.games import open_table
from app.play.players import Player
from app.play.recording import play_recorded
from app.play.selfplay import selfplay_schedule
from app.store import Shard, ShardMeta

AT_ONCE = 1024
"""Games of a shard: some dozen megabytes where observations are long."""


def play_lessons(
    config: GameConfig, player: Player, name: str, games: int, *, seed: int, temperature: float
) -> Iterator[Shard]:
    """Yield the rows of all seats, shard by shard. Deterministic on a CPU.

    Args:
        config: whose game is played, and how it is rewarded.
        player: sits in every seat.
        name: of the player; its hash where it is a model.
        games: of all shards together.
        seed: of all that is drawn.
        temperature: of the player.

    Raises ``NoExperience``.
    """
    rules = open_table(config, slots=0).spec.rules_version
    for first in range(0, games, AT_ONCE):
        count = min(AT_ONCE, games - first)
        part = derive_seed(seed, "lessons", first)
        schedule = selfplay_schedule(count, config.players, [], (temperature,), part)
        meta = ShardMeta(
            config_key=config.key,
            rules_version=rules,
            model=name,
            opponents=(),
            seed=part,
            worker="lessons",
            temperature=temperature,
        )
        shard, _ = play_recorded(config, [player], schedule, meta, in_flight=AT_ONCE)
        yield shard
