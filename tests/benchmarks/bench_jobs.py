"""Processor time of each kind of job, by configuration.

They are the times of ``app/simulation/plant.toml``.

A first model plays requests until they make a training; each is inspected, compared with those before it. The model is
trained on the first of them and on all, and the new model plays against random moves and against its parent. Run with
``pytest tests/benchmarks/bench_jobs.py -m benchmark -s``.
"""

from importlib import import_module
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import pytest
import torch
from selfplay_rig import ignore, inspection_spec, selfplay_spec

from flyball.app.backends import backend_of
from flyball.app.config import GAMES
from flyball.app.play.gauntlet import MODEL, GauntletSpec, Opponent

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]
GAMES_EACH = 60
MOST_REQUESTS = 12


def timed(job: str, spec: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Do a job; return its result and its processor time in seconds."""
    module, _, name = job.partition(":")
    function = getattr(import_module(module), name)
    began = process_time()
    return function(spec, ignore), process_time() - began


@pytest.mark.parametrize("key", GAMES)
def test_jobs_take_processor_time(key: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    config, compute = GAMES[key], {"device": "cpu", "precision": "auto"}
    backend, base = backend_of(config), {"store": str(tmp_path), "config": config.model_dump(mode="json"), **compute}
    model = timed(backend.initialise, {**base, "seed": 0})[0]["model"]

    def play(seed: int) -> tuple[dict[str, Any], float]:
        games = config.selfplay.games_per_request
        return timed(backend.play, {**selfplay_spec(tmp_path, model, config, games=games, seed=seed), **compute})

    play(MOST_REQUESTS)  # compiles, and is not counted
    shards, rows, requests, inspections = list[str](), 0, list[float](), list[float]()
    while rows < config.rows_per_training and len(shards) < MOST_REQUESTS:
        result, seconds = play(len(shards))
        requests.append(seconds)
        earlier, rows = tuple(shards), rows + result["rows"]
        shards.append(result["shard"])
        spec = inspection_spec(tmp_path, shards[-1], config, earlier=earlier, discard=[], model=model)
        inspections.append(timed(backend.inspect, spec)[1])
    training = {**base, "base_model": model, "replayed": [], "seed": 0, "step": 0, "learning_rate": 1e-3, "epochs": 3}
    trainings = [timed(backend.train, {**training, "shards": some}) for some in (shards[:1], shards)]
    child = trainings[-1][0]["model"]
    opponents = (
        Opponent(name="random", kind="random", games=GAMES_EACH),
        Opponent(name="champion", kind=MODEL, model=model, games=GAMES_EACH),
    )
    parts = GauntletSpec(store=tmp_path, config=config, model=child, opponents=opponents, seed=0).parts
    timed(backend.match, parts[0])  # compiles, and is not counted
    games = sum(timed(backend.match, part)[1] for part in parts) / sum(opponent.games for opponent in opponents)
    lines = ", ".join(f"{result['rows']:,} rows in {seconds:.2f} s" for result, seconds in trainings)
    print(  # noqa: T201
        f"\n{key}: request {median(requests):.3f} s, inspection {median(inspections):.3f} s, "
        f"trainings of {lines}, rated game {games * 1000:.2f} ms"
    )
    assert rows > 0
