"""Trainings by several processes: equal results, and deaths of processes. Ranks die, and their parents."""

import asyncio
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from own_training import TIC_TAC_TOE, first_model, train_spec
from selfplay_rig import ignore

from flyball.app.config import GameConfig, NetworkSettings, PpoCoefficients
from flyball.app.engine import JobFailed, LocalEngine, WorkerLost
from flyball.app.learning import jobs, torchrun
from flyball.app.learning.network import bytes_to_parameters
from flyball.app.learning.ranks import RankFailed
from flyball.app.learning.torchrun import ProcessesLost
from flyball.app.store import FileStore, get_checkpoint

PROGRAM = "flyball.app.learning.rank_process"
STEADY = PpoCoefficients(batch_size=64, target_kl=10, max_kl=10)


def by_ppo(root: Path, config: GameConfig = TIC_TAC_TOE, **changes: Any) -> dict:
    """Return the spec of a training by PPO on 50 games."""
    steady = config.replace(ppo=STEADY)
    return train_spec(root, steady, first_model(root, steady), games=50, epochs=3, **changes)


def descendants() -> set[psutil.Process]:
    """Return all processes that come from this one. Some are servers that other tests started."""
    return set(psutil.Process().children(recursive=True))


def ranks_of(process: psutil.Process) -> list[psutil.Process]:
    """Return the ranks among a process's descendants, rank 0 first."""
    found = []
    for child in process.children(recursive=True):
        command = child.cmdline()
        if PROGRAM in command and "--module" not in command:  # torchrun and its guard have it as an option
            found.append(child)
    return sorted(found, key=lambda child: int(child.environ()["RANK"]))


def assert_near(root: Path, one: dict, other: dict) -> None:
    """Assert that two results of jobs, metrics included, are nearly equal. They may differ by rounding."""
    metrics = [dict(result.pop("metrics")) for result in (one, other)]
    models = [get_checkpoint(FileStore(root), result.pop("model"), optimizer=True) for result in (one, other)]
    assert other == one
    for found in metrics:
        del found["seconds"]
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-4, abs=1e-6)
    for files in ([model.parameters for model in models], [model.optimizer for model in models]):
        here, there = map(bytes_to_parameters, files)
        for name, tensor in here.items():
            torch.testing.assert_close(there[name], tensor, rtol=1e-4, atol=2e-6)


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    given, reports, addresses = by_ppo(tmp_path), [], set()
    others = descendants()

    def report(progress: dict) -> None:
        reports.append(progress)
        for process in descendants() - others:
            connections = process.net_connections("inet")
            addresses.update(found.laddr.ip for found in connections if found.status == psutil.CONN_LISTEN)

    alone = jobs.train(given, ignore)
    together = jobs.train({**given, "processes": 2}, report)
    assert_near(tmp_path, alone, together)
    assert [progress["epoch"] for progress in reports] == list(range(1, given["epochs"] + 1))
    assert addresses == {"127.0.0.1"}, "nothing listens where other machines reach it"


def failing(how: str) -> GameConfig:
    network = NetworkSettings(kind="failing_network:build", options={"how": how})
    return TIC_TAC_TOE.replace(network=network)


def test_error_of_one_rank_is_the_training_s(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RankFailed, match=r"ZeroDivisionError: no sense in rank 1 \(failing_network.py, line \d+\)"):
        jobs.train(by_ppo(tmp_path, failing("raise"), processes=2), ignore)
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.slow
def test_training_is_given_up_after_the_last_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchrun, "RESTARTS", 2)
    with pytest.raises(ProcessesLost, match="given up after 2 restarts: process 1 was ended by SIGKILL") as lost:
        jobs.train(by_ppo(tmp_path, failing("kill"), processes=2), ignore)
    assert lost.value.hint


@pytest.mark.slow
def test_killed_rank_is_restarted_and_the_model_is_the_same(tmp_path: Path) -> None:
    epochs = 200
    spec = by_ppo(tmp_path, processes=2) | {"epochs": epochs}
    undisturbed, reports, seen = jobs.train(spec, ignore), [], []

    def report(progress: dict) -> None:
        reports.append(progress["epoch"])
        if progress["epoch"] in (1, epochs - 50):
            seen.append(ranks_of(psutil.Process()))
        if progress["epoch"] == 1:
            seen[0][1].kill()

    assert jobs.train(spec, report)["model"] == undisturbed["model"]
    assert reports == list(range(1, epochs + 1))
    assert len(seen[1]) == 2
    assert {rank.pid for rank in seen[0]}.isdisjoint(rank.pid for rank in seen[1]), "both were started again"


DEATHS = {"cancelled": asyncio.CancelledError, "flyball.app.engine": WorkerLost, "torch.distributed.run": JobFailed}


@pytest.mark.parametrize("death", DEATHS)
async def test_no_rank_outlives_its_training(tmp_path: Path, death: str) -> None:
    """End a training by a cancelled job or a killed process. A job is cancelled at its deadline."""
    engine, begun = LocalEngine(), asyncio.Event()
    others = descendants()
    spec = by_ppo(tmp_path, processes=2) | {"epochs": 100_000}
    task = asyncio.get_running_loop().create_task(
        engine.run("flyball.app.learning.jobs:train", spec, lambda _: begun.set())
    )
    async with asyncio.timeout(240):
        await begun.wait()
    ranks = ranks_of(psutil.Process())
    commands = {child: child.cmdline() for child in descendants() - others}
    folder = Path(ranks[0].cmdline()[-1])
    assert len(ranks) == 2
    if death == "cancelled":
        task.cancel()
    else:
        next(child for child, command in commands.items() if command[1:4] == ["-P", "-m", death]).kill()
    with pytest.raises(DEATHS[death]) as ended:
        await task
    if isinstance(ended.value, JobFailed):
        assert ended.value.kind == "ProcessesLost"
    ended_with_it = [
        child
        for child, command in commands.items()
        if death != "torch.distributed.run" or "flyball.app.engine" not in command
    ]
    _, alive = await asyncio.to_thread(psutil.wait_procs, ended_with_it, 20)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []
    assert not await asyncio.to_thread(folder.exists)
    await engine.close()
