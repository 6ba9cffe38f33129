"""Lists of legal actions against masks: bytes and update time.

Bytes are those of a row on disk and in memory, all in one run. The rows are shogi's (13,689 actions): games of a new
model, each cut off after 160 moves. Rates are by processor time, on one thread. Run with
``pytest tests/benchmarks/bench_legal_lists.py -m benchmark -s``.
"""

from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import pytest
import safetensors.numpy
import torch
from selfplay_rig import ignore, put_model, selfplay_spec

from flyball.app.config import GameConfig, PpoSettings
from flyball.app.core import legal
from flyball.app.core.legal import LegalActions
from flyball.app.learning.learner import improve
from flyball.app.learning.samples import make_samples
from flyball.app.play.selfplay import play
from flyball.app.store import FileStore, MemoryStore, Shard, get_checkpoint, get_shard, put_shard
from flyball.app.store import shard as shard_format

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]
CONFIG = GameConfig(key="shogi_2p", game="shogi", players=2, max_moves=160)
GAMES, ROUNDS = 64, 5
SETTINGS = PpoSettings(batch_size=256, epochs=1, target_kl=10, max_kl=10)
LARGEST = 150  # bytes a row on disk
MANY = 75  # rows with more legal actions are counted apart, for instance where pieces can be dropped
SLOWEST = 1.05  # times as long as with masks


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Shard]:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("store")
    model = put_model(root, CONFIG)
    return (
        root,
        model,
        get_shard(FileStore(root), play(selfplay_spec(root, model, CONFIG, games=GAMES), ignore)["shard"]),
    )


def stored_bytes(shard: Shard, *names: str) -> float:
    """Return the bytes a row of some arrays in a shard."""
    store = MemoryStore()
    arrays = safetensors.numpy.load(store.get(put_shard(store, shard)))
    return sum(arrays[name].nbytes for name in names) / shard.rows


def test_bytes_of_a_row(played, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, shard = played
    lists, mask = shard.mask, np.asarray(shard.mask)
    assert isinstance(lists, LegalActions)
    disk = stored_bytes(shard, "legal_gaps", "legal_leaps")
    monkeypatch.setattr(legal, "MANY_ACTIONS", lists.actions + 1)
    bits = stored_bytes(replace(shard, mask=mask), "mask_bits")
    memory = (lists.listed.nbytes + lists.ends.nbytes) / shard.rows
    chosen = lists[lists.counts >= MANY]
    free = sum(array.nbytes for array in shard_format._gaps(chosen).values()) / len(chosen)
    print(  # noqa: T201
        f"\n{shard.rows:,} rows of {lists.counts.mean():.1f} legal actions of {lists.actions:,}, at most "
        f"{lists.counts.max()}\non disk: lists {disk:.0f} bytes a row, bits of a mask {bits:,.0f}, "
        f"{bits / disk:.0f} times\nin memory: lists {memory:.0f}, mask {mask.nbytes / shard.rows:,.0f}, "
        f"{mask.nbytes / shard.rows / memory:.0f} times\n"
        f"{len(chosen):,} rows of at least {MANY} legal actions, {chosen.counts.mean():.1f} on average: {free:.0f}"
    )
    assert max(disk, free) <= LARGEST


def test_time_of_an_update(played) -> None:
    root, model, shard = played
    base = get_checkpoint(FileStore(root), model)
    with_lists, with_masks = (
        make_samples([one], 1.0, 0.95) for one in (shard, replace(shard, mask=np.asarray(shard.mask)))
    )
    took: list[list[float]] = []
    for _ in range(ROUNDS + 1):  # the first warms up
        laps = [process_time()]
        for samples in (with_lists, with_masks):
            improve(base, samples, SETTINGS, seed=1, report=lambda epoch, metrics: None)
            laps.append(process_time())
        took.append(np.diff(laps).tolist())
    lists, masks = (shard.rows / median(column) for column in zip(*took[1:], strict=True))
    print(f"\nupdate: lists {lists:,.0f} rows/s, masks {masks:,.0f}, {masks / lists:.3f} times as long")  # noqa: T201
    assert masks / lists <= SLOWEST
