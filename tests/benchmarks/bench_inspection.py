"""Processor time of an inspection relative to that of its games.

Both are measured in one run. A new model plays 24 shards without search, and each is compared with the 16 before it.
Run with ``pytest tests/benchmarks/bench_inspection.py -m benchmark -s``.
"""

from pathlib import Path
from statistics import median
from time import process_time

import pytest
import torch
from selfplay_rig import ignore, inspection_spec, put_model, selfplay_spec

from flyball.app.config import GAMES
from flyball.app.play.inspection import COMPARED, inspect
from flyball.app.play.selfplay import play

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]
SHARDS = COMPARED + 8
MOST = 1.0  # tic-tac-toe has the highest ratio, because its games take least


@pytest.mark.parametrize("key", ["tic_tac_toe_2p", "connect_four_2p", "hex7_2p", "breakthrough6_2p"])
def test_inspection_takes_no_longer_than_games_without_search(key: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    config = GAMES[key]
    model, shards, ratios = put_model(tmp_path, config), list[str](), list[float]()
    for seed in range(SHARDS):
        spec = selfplay_spec(tmp_path, model, config, games=256, seed=seed)
        began = process_time()
        shards.append(play(spec, ignore)["shard"])
        played = process_time()
        inspect(inspection_spec(tmp_path, shards[-1], config, earlier=shards[:-1], model=model), ignore)
        ratios.append((process_time() - played) / (played - began))
    ratio = median(ratios[COMPARED:])
    print(f"\n{key}: an inspection takes {ratio:.2f} times the processor time of its games")  # noqa: T201
    assert ratio < MOST
