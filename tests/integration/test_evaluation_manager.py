"""EvaluationManager on real processes that die, hang or are cancelled."""

import asyncio
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from flyball.app.config import GAMES
from flyball.app.core import ModelHash
from flyball.app.engine import LocalEngine
from flyball.app.learning.jobs import initialise
from flyball.app.play.gauntlet import GauntletSpec, NothingPlayed, Opponent
from flyball.app.play.matches import EvaluationManager

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIG = GAMES["tic_tac_toe_2p"]


def drawn(store: Path, seed: int) -> ModelHash:
    spec = {"store": str(store), "config": CONFIG.model_dump(mode="json"), "seed": seed}
    return ModelHash(initialise(spec, lambda report: None)["model"])


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def gauntlet(store: Path, *, games: int = 100, batch_games: int = 20, **settings) -> GauntletSpec:
    evaluation = CONFIG.evaluation.replace(batch_games=batch_games, **settings)
    hero, champion = drawn(store, 1), drawn(store, 2)
    return GauntletSpec(
        store=store,
        config=CONFIG.replace(evaluation=evaluation),
        model=hero,
        opponents=(
            Opponent(name="random", kind="random", games=games // 2),
            Opponent(name="champion", kind="model", model=champion, games=games // 2),
        ),
        seed=7,
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine():
    """Start processes once, because each takes seconds until it can play."""
    made = LocalEngine(workers=2)
    yield made
    await made.close()


def kill_at_work(child: psutil.Process) -> bool:
    """Kill a worker that has begun; return whether it was killed.

    Other processes, and workers that have ended, count as not killed.
    """
    try:
        if begun := "flyball.app.engine" in child.cmdline() and child.cpu_times().user > 0.2:
            child.kill()
    except psutil.NoSuchProcess:
        return False
    return begun


async def kill_workers(times: int, finished: asyncio.Event) -> int:
    """Kill one worker after another; return the number of those killed."""
    killed: set[int] = set()
    while len(killed) < times and not finished.is_set():
        for worker in psutil.Process().children():
            if worker.pid not in killed and len(killed) < times and kill_at_work(worker):
                killed.add(worker.pid)
        await asyncio.sleep(0.02)
    return len(killed)


async def with_kills(engine: LocalEngine, spec: GauntletSpec, times: int):
    finished = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        killer = group.create_task(kill_workers(times, finished))
        result = await EvaluationManager(engine).start(group, spec)
        finished.set()
    return result, killer.result()


@pytest.mark.parametrize("times", [4, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
async def test_killed_workers_lose_no_game_and_repeat_none(store, engine, times) -> None:
    spec = gauntlet(store, games=1000, batch_games=10)
    result, killed = await with_kills(engine, spec, times)
    assert killed == times
    assert sum(match.games for match in result.results) == 1000
    assert result.lost_games == 0
    undisturbed = await EvaluationManager(engine).evaluate(spec)
    assert result.results == undisturbed.results


async def test_progress_is_told_batch_by_batch(store, engine) -> None:
    heard: list[dict] = []
    await EvaluationManager(engine).evaluate(gauntlet(store), heard.append)
    told = sorted((report["opponent"], report["games"]) for report in heard)
    assert told == [(opponent, games) for opponent in ("champion", "random") for games in (10, 20, 20)]


async def test_batches_that_hang_are_written_off(store) -> None:
    """Set a deadline far below the start of a process. So every batch is too slow."""
    starting = LocalEngine(workers=2)
    with pytest.raises(NothingPlayed, match="not done within"):
        await EvaluationManager(starting).evaluate(gauntlet(store, games=20, batch_seconds=0.01))
    await starting.close()


async def test_unplayable_opponent_costs_its_own_games_only(store, engine) -> None:
    spec = gauntlet(store)
    absent = spec.opponents[1].replace(model=ModelHash("f" * 64))
    result = await EvaluationManager(engine).evaluate(spec.replace(opponents=(spec.opponents[0], absent)))
    assert [match.opponent for match in result.results] == ["random"]
    assert result.lost_games == 50
    assert "MissingBlob" in (result.error or "")


async def test_cancelling_stops_the_games(store, engine) -> None:
    manager = EvaluationManager(engine)
    first: asyncio.Future[dict] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        task = manager.start(
            group, gauntlet(store, games=4000), lambda report: first.done() or first.set_result(report)
        )
        await first
        task.cancel()
    assert task.cancelled()
    assert (await manager.evaluate(gauntlet(store, games=20))).lost_games == 0
