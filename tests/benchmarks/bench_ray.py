"""Self-play through Ray against local processes.

Both run the same jobs, in turn, on the same cores:

python -m pytest -m benchmark -s tests/benchmarks/bench_ray.py
"""

import asyncio
import sys
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter

import pytest

from flyball.app.backends import backend_of
from flyball.app.config import GAMES
from flyball.app.engine import Engine, LocalEngine
from flyball.app.engine.ray_engine import RayEngine
from flyball.daemons.ray_cluster import NICE

pytestmark = pytest.mark.benchmark
CONFIG = GAMES["othello_2p"].replace(backend="policy_gradient")
ROUNDS, JOBS, GAMES_EACH = 10, 8, 256
CORES = 2


async def seconds(engine: Engine, spec: dict, first_seed: int) -> float:
    """Play ``JOBS`` jobs; return how long they took."""
    began = perf_counter()
    jobs = [engine.run(backend_of(CONFIG).play, {**spec, "seed": first_seed + number}) for number in range(JOBS)]
    await asyncio.gather(*jobs)
    return perf_counter() - began


def compared(ours: list[float], others: list[float]) -> str:
    """Return the ratio of speeds with its 95% interval. It is the geometric mean of paired ratios."""
    ratios = [log(other / our) for our, other in zip(ours, others, strict=True)]
    margin = 2.26 * stdev(ratios) / sqrt(len(ratios))  # Student's t, 9 degrees of freedom
    low, mean, high = (exp(fmean(ratios) + sign * margin) for sign in (-1, 0, 1))
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


@pytest.mark.timeout(1200)
async def test_selfplay_through_ray_keeps_up_with_local_processes(own_ray, tmp_path: Path) -> None:
    local = {each: LocalEngine(each * CORES, nice=NICE) for each in (1, 2)}  # processes a core
    ray = {each: RayEngine(own_ray[0], {"CPU": 1 / each}) for each in (1, 2)}
    basis = {"store": str(tmp_path), "config": CONFIG.model_dump(mode="json"), "device": "cpu"}
    made = await local[1].run(backend_of(CONFIG).initialise, {**basis, "seed": 1})
    spec = {**basis, "model": made["model"], "games": GAMES_EACH, "temperature": 1.0, "worker": "bench"}
    engines: dict[str, Engine] = {
        **{f"local, {each} a core": engine for each, engine in local.items()},
        **{f"ray, {each} a core": engine for each, engine in ray.items()},
    }
    for engine in engines.values():
        await seconds(engine, spec, 10_000)  # processes start, and compile
        await seconds(engine, spec, 20_000)
    taken: dict[str, list[float]] = {name: [] for name in engines}
    for number in range(ROUNDS):
        for name, engine in engines.items():
            taken[name].append(await seconds(engine, spec, number * JOBS))
    lines = [f"{name}: {JOBS * GAMES_EACH / fmean(times):,.0f} games/s" for name, times in taken.items()]
    for each in (1, 2):
        ratio = compared(taken[f"ray, {each} a core"], taken[f"local, {each} a core"])
        lines.append(f"ray / local, {each} a core: {ratio}")
    for where in ("local", "ray"):
        ratio = compared(taken[f"{where}, 2 a core"], taken[f"{where}, 1 a core"])
        lines.append(f"{where}, 2 a core / 1: {ratio}")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    for engine in local.values():
        await engine.close()
