"""Training commands die with their jobs, with all their processes. Their failures become events."""

import asyncio
from pathlib import Path

import psutil
import pytest
from own_training import BASE, GOOD, OPEN, TIC_TAC_TOE, commanded, first_model, folders, stored, train_spec
from selfplay_rig import ignore
from structlog.testing import capture_logs

from flyball.app.bus.memory import MemoryBus
from flyball.app.config import DeadlineSettings, GameConfig, RunSettings
from flyball.app.core import FlyballError
from flyball.app.engine import InlineEngine, JobFailed, JobTimedOut, LocalEngine
from flyball.app.engine.folder_command import private_folder
from flyball.app.events import (
    Payload,
    RunConfigured,
    ShardRef,
    TrainingCompleted,
    TrainingFailed,
    TrainingProgress,
    TrainingRequested,
    originate,
)
from flyball.app.job_specs import JobContext
from flyball.app.journal import history
from flyball.app.journal.memory import MemoryJournal, MemoryStateStore
from flyball.app.learning.own_trainers import train_by_command
from flyball.daemons.clock import SystemClock
from flyball.daemons.host import Host, Ports, Rhythm
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.registry import DAEMONS
from flyball.daemons.supervisor import Notifier


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


HANG = """
import os, subprocess, time
child = subprocess.Popen(["sleep", "1000"])
Path("pids.part").write_text(f"{os.getpid()} {child.pid}")
Path("pids.part").rename("pids")
print('{"epoch": 1, "epochs": 9}', flush=True)
time.sleep(1000)
"""


async def pids_of(root: Path) -> list[int]:
    """Return the ids of the command and its child, once they run."""
    file = root.parent / "pids"
    async with asyncio.timeout(200):
        while not file.exists():
            await asyncio.sleep(0.02)
    return [int(pid) for pid in file.read_text().split()]


def gone(pids: list[int]) -> bool:
    """Return whether the processes end within seconds. Processes that have ended already count as gone."""
    found = [process for process in psutil.process_iter() if process.pid in pids]
    _, alive = psutil.wait_procs(found, timeout=200)
    return all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


JOB = "flyball.app.learning.own_trainers:train_by_command"


async def test_command_dies_with_its_child_at_the_deadline(root: Path) -> None:
    spec, engine = commanded(root, "sys.exit(1)"), LocalEngine()
    before = stored(root)
    with pytest.raises(JobFailed, match="code 1"):  # starts the worker, which takes seconds
        await engine.run(JOB, spec)
    (root.parent / "mine.py").write_text(BASE + HANG)
    task = asyncio.get_running_loop().create_task(engine.run(JOB, spec, deadline_seconds=3.0))
    processes = await pids_of(root)
    with pytest.raises(JobTimedOut):
        await task
    assert await asyncio.to_thread(gone, processes)
    (left,) = folders(root)
    (root.parent / "mine.py").write_text(BASE + "sys.exit(1)")
    with pytest.raises(JobFailed, match="code 1"):
        await engine.run(JOB, spec)
    assert not left.exists(), "the next job removes what a killed one left"
    assert stored(root) == before
    await engine.close()


@pytest.mark.parametrize("kind", [LocalEngine, InlineEngine])
async def test_command_dies_when_its_job_is_cancelled(root: Path, kind: type) -> None:
    """Let the command report again and again. A job in a thread ends at its next report."""
    script = HANG.replace("time.sleep(1000)", TICKING) if kind is InlineEngine else HANG
    spec, engine = commanded(root, script), kind()
    task = asyncio.get_running_loop().create_task(engine.run(JOB, spec))
    pids = await pids_of(root)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(gone, pids)
    await engine.close()


TICKING = """
for epoch in range(2, 1000):
    print(json.dumps({"epoch": epoch, "epochs": 1000}), flush=True)
    time.sleep(0.1)
"""


async def test_command_dies_with_a_killed_worker(root: Path) -> None:
    spec, engine = commanded(root, HANG), LocalEngine()
    task = asyncio.get_running_loop().create_task(engine.run(JOB, spec))
    command, child = await pids_of(root)
    guard = psutil.Process(command).parent()
    guard.parent().kill()  # the worker
    with pytest.raises(FlyballError, match="ended before its job did"):
        await task
    assert await asyncio.to_thread(gone, [command, child, guard.pid])
    await engine.close()


def test_children_of_an_ended_command_are_killed(root: Path) -> None:
    leave = 'import subprocess\nPath("pids").write_text(str(subprocess.Popen(["sleep", "1000"]).pid))\n'
    train_by_command(commanded(root, leave + GOOD), ignore)
    pid = int((root.parent / "pids").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_folders_of_live_or_vanishing_jobs_are_not_swept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with private_folder(root / "trainings") as mine, private_folder(root / "trainings") as other:
        assert mine.exists()
        assert other.exists()
    assert folders(root) == []
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([folder / "gone"]))
    with private_folder(root / "trainings") as mine:
        assert mine.exists()


class Story:
    """A training daemon with real jobs, on a journal in memory."""

    def __init__(self, root: Path, config: GameConfig, seconds: float) -> None:
        self.root, self.clock, self.published = root, SystemClock(), 0
        self.settings = RunSettings(configs=(config,), deadlines=DeadlineSettings(training_seconds=seconds))
        self.journal = MemoryJournal()
        self.bus = MemoryBus(self.journal, self.clock, producer="broker@laptop")

    async def publish(self, data: Payload, subject: str | None) -> None:
        self.published += 1
        envelope = originate(data, event_id=f"e{self.published}", time=self.clock.now(), subject=subject)
        await self.bus.publish(envelope)

    async def ask(self, spec: dict) -> TrainingFailed | TrainingCompleted:
        """Ask for a training, and return the event that ends it."""
        if not self.published:
            configured = RunConfigured(run_id="r", settings=self.settings.model_dump(mode="json"))
            await self.publish(configured, None)
        worker, names = "selfplay_worker@laptop", ("base_model", "step", "seed", "learning_rate", "epochs")
        shards = [
            ShardRef(worker=worker, key=key, rows=9, games=1, model=spec["base_model"], seed=1)
            for key in spec["shards"]
        ]
        asked = TrainingRequested(shards=tuple(shards), **{name: spec[name] for name in names})
        await self.publish(asked, spec["config"]["key"])
        before, stop = len(self.of(TrainingFailed, TrainingCompleted)), asyncio.Event()
        ports = Ports(self.bus, MemoryStateStore(), self.clock, InlineEngine(), Notifier(""))
        context = JobContext(store=self.root, settings_folder=str(self.root.parent))
        identity = WorkerIdentity("training@laptop", "laptop", context)
        host = Host(DAEMONS["training"], identity, f"boot{self.published}", ports, Rhythm(0.1, 5.0))
        async with asyncio.TaskGroup() as group, asyncio.timeout(120):
            group.create_task(host.run(stop))
            while len(ended := self.of(TrainingFailed, TrainingCompleted)) == before:
                await asyncio.sleep(0.02)
            stop.set()
        return ended[-1]

    def of(self, *types: type[Payload]) -> list:
        return [event.data for event in history(self.journal, types=types)]


REASONS = {
    "diverged": OPEN + "Path(paths['result']).write_text(json.dumps({'discard': 'too far'}))",
    "error": "sys.exit(3)",
    "timed_out": "import time" + TICKING,
}


async def test_failed_command_is_published_and_next_one_trains(root: Path) -> None:
    spec = commanded(root, "")
    story, before = Story(root, GameConfig.model_validate(spec["config"]), seconds=4.0), stored(root)
    for reason, script in REASONS.items():
        (root.parent / "mine.py").write_text(BASE + script)
        ended = await story.ask(spec)
        assert (type(ended), ended.reason) == (TrainingFailed, reason), ended
    (root.parent / "mine.py").write_text(BASE + """print('{"epoch": 1, "epochs": 1, "elbo": 0.5}')""" + GOOD)
    missing = await story.ask({**spec, "shards": ["f" * 64]})
    assert missing.reason == "bad_data"
    assert stored(root) == before
    ended = await story.ask(spec)
    assert isinstance(ended, TrainingCompleted), ended
    assert ended.parent == spec["base_model"], "the base model stood"
    assert ended.metrics["policy_loss"] == 0.25
    assert story.of(TrainingProgress)[-1].metrics == {"elbo": 0.5}


async def test_failed_function_is_logged_with_its_trace(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root.parent / "raising_trainer.py").write_text("def train(spec, report):\n    return 1 / 0\n")
    monkeypatch.syspath_prepend(root.parent)
    config = TIC_TAC_TOE.replace(trainer="raising_trainer:train")
    spec = train_spec(root, config, first_model(root, config), games=8)
    with capture_logs() as logs:
        ended = await Story(root, config, seconds=60.0).ask(spec)
    assert ended.reason == "error"
    assert "ZeroDivisionError: division by zero (" in ended.error
    (failed,) = (line for line in logs if line["event"] == "job failed")
    assert "raising_trainer.py" in failed["trace"]
