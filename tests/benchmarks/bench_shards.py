"""Shards of several games: size and times, packed and not.

Run with ``pytest tests/benchmarks/bench_shards.py -m benchmark -s``. Games are random, of a table of 32. Times are of
the processor, the median of some rounds, in a folder; reading verifies the hash and unpacks.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import pytest
import safetensors.numpy

from flyball.app.config import GAMES, GameConfig
from flyball.app.core import ShardKey
from flyball.app.core.legal import LegalActions
from flyball.app.play.players import RandomPlayer
from flyball.app.play.selfplay import play_recorded, selfplay_schedule
from flyball.app.store import FileStore, Shard, get_shard, put_shard, with_note
from flyball.app.store.shard import GAME_TYPES, ROW_TYPES, _gaps, _Note

pytestmark = pytest.mark.benchmark
ROUNDS = 5
CONFIGS = {
    "chess": (GameConfig(key="chess_2p", game="chess", players=2), 256),
    "connect four": (GAMES["connect_four_2p"], 256),
    "go 7 x 7": (GAMES["go7_2p"], 256),
    "hearts": (GAMES["hearts_4p"], 256),
    "minishogi": (GAMES["minishogi_2p"], 256),
    "Leduc poker": (GameConfig(key="leduc_2p", game="leduc_poker", players=2), 4096),
}


def plain(store: FileStore, shard: Shard) -> ShardKey:
    """Store a shard as before observations were packed."""
    arrays = {name: getattr(shard, name) for name in ("obs", *ROW_TYPES, *GAME_TYPES)}
    lists = isinstance(shard.mask, LegalActions)
    arrays |= _gaps(shard.mask) if lists else {"mask_bits": np.packbits(shard.mask, axis=1)}
    note = _Note(**shard.meta.model_dump(), actions=shard.mask.shape[1], version=2 if lists else 1)
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return ShardKey(store.put(with_note(safetensors.numpy.save(whole), note.model_dump_json(exclude_defaults=True))))


def timed(folder: Path, shard: Shard, put: Callable[[FileStore, Shard], ShardKey]) -> tuple[float, float, float]:
    """Return megabytes, and milliseconds of writing and of reading."""
    writes, reads = list[float](), list[float]()
    for number in range(ROUNDS):
        store, began = FileStore(folder / str(number)), process_time()
        key = put(store, shard)
        written = process_time()
        get_shard(store, key)
        writes.append(1000 * (written - began))
        reads.append(1000 * (process_time() - written))
    return store.path(key).stat().st_size / 1e6, median(writes), median(reads)


@pytest.mark.parametrize("name", CONFIGS)
def test_size_and_time_of_a_shard(tmp_path: Path, name: str) -> None:
    config, games = CONFIGS[name]
    schedule = selfplay_schedule(games, config.players, [], (1.0,), 0, opening_plies=0)
    began = process_time()
    shard = play_recorded(config, [RandomPlayer()], schedule, model="a" * 64, seed=0, worker="w", in_flight=32)[0]
    played = process_time() - began
    before, now = timed(tmp_path / "plain", shard, plain), timed(tmp_path / "packed", shard, put_shard)
    figures = " | ".join(
        f"{one:,.1f} → {other:,.1f}" if number else f"{one:,.2f} → {other:,.2f}"
        for number, (one, other) in enumerate(zip(before, now, strict=True))
    )
    sys.stdout.write(f"\n| {name} | {shard.rows:,} | {played:.1f} | {figures} |\n")
