"""A hanging job in a real process is killed, replaced and reported."""

import asyncio
from pathlib import Path

import psutil
import pytest

from app.bus.memory import MemoryBus
from app.config import GAMES, DeadlineSettings, RunSettings
from app.engine import LocalEngine
from app.engine.port import TIMEOUTS
from app.events import RunConfigured, TrainingFailed, TrainingRequested, originate
from app.journal import history
from app.journal.memory import MemoryJournal, MemoryStateStore
from daemons.clock import SystemClock
from daemons.host import Host, Ports, Rhythm
from daemons.jobs import WorkerPlace
from daemons.registry import DAEMONS
from daemons.supervisor import Notifier

KEY = "tic_tac_toe_2p"
HANG = """
import os, time

def hang(spec, report):
    with open({pids!r}, "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    time.sleep(3600)

def answer(spec, report):
    return {{"pid": os.getpid()}}
"""


class HangingEngine(LocalEngine):
    """An engine of real processes in which every job hangs."""

    async def run(self, function, spec, on_progress=None, deadline_seconds=None):
        return await super().run("hanging:hang", {}, on_progress, deadline_seconds)


@pytest.fixture
async def engine(tmp_path: Path, monkeypatch):
    (tmp_path / "hanging.py").write_text(HANG.format(pids=str(tmp_path / "pids")))
    monkeypatch.syspath_prepend(str(tmp_path))
    made = HangingEngine(workers=1)
    yield made
    await made.close()


async def test_hanging_training_is_killed_and_its_failure_said(engine, tmp_path):
    journal, clock, stop = MemoryJournal(), SystemClock(), asyncio.Event()
    bus = MemoryBus(journal, clock, producer="broker@laptop")
    settings = RunSettings(configs=(GAMES[KEY],), deadlines=DeadlineSettings(training_seconds=4.0))
    configured = RunConfigured(run_id="r", settings=settings.model_dump(mode="json"))
    await bus.publish(originate(configured, event_id="configured", time=clock.now()))
    request = TrainingRequested(base_model=None, shards=(), step=0, seed=1, learning_rate=0.1, epochs=1)
    await bus.publish(originate(request, event_id="request", time=clock.now(), subject=KEY))
    ports = Ports(bus, MemoryStateStore(), clock, engine, Notifier(""))
    host = Host(DAEMONS["training"], WorkerPlace("training@laptop", "laptop", "store"), "boot", ports, Rhythm(0.1, 0.2))
    async with asyncio.TaskGroup() as group, asyncio.timeout(120):
        group.create_task(host.run(stop))
        while not (failed := [event.data for event in history(journal, types={TrainingFailed})]):
            await asyncio.sleep(0.05)
        stop.set()
    assert [(one.request_id, one.reason) for one in failed] == [("request", "timed_out")]
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert len(set(pids)) == TIMEOUTS, "each attempt had a process of its own"
    assert not any(psutil.pid_exists(pid) for pid in pids)
    answer = await LocalEngine.run(engine, "hanging:answer", {})
    assert answer["pid"] not in pids
    await bus.close()
