"""A failing self-play worker pauses while another plays on. Both have real hosts."""

import asyncio
from collections import Counter
from typing import Any

from flyball.app.bus.memory import MemoryBus
from flyball.app.config import GAMES, FeedbackSettings, RunSettings
from flyball.app.engine import JobFailed
from flyball.app.events import (
    ClockTick,
    ModelDistributed,
    NodeDegraded,
    QualityScoreUpdated,
    RunConfigured,
    SelfplayFailed,
    SelfplayRequested,
    originate,
)
from flyball.app.job_specs import JobContext
from flyball.app.journal import history
from flyball.app.journal.memory import MemoryJournal, MemoryStateStore
from flyball.daemons.clock import SystemClock
from flyball.daemons.host import Host, Ports, Rhythm
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.registry import DAEMONS
from flyball.daemons.supervisor import Notifier

KEY, MODEL = "tic_tac_toe_2p", "a" * 64
PLAYED = {"rows": 9, "games": 256, "mean_length": 9.0, "truncated": 0, "seconds": 0.1}
INSPECTED = {"checked": 16, "failures": [], "score": 0.9, "components": {}}
RHYTHM = Rhythm(heartbeat_seconds=0.05, drain_seconds=0.2)
PAUSES = {"pause_seconds": 0.5, "longest_pause_seconds": 100.0}


class Engine:
    """An engine that gives the same outcome every time, after a moment."""

    def __init__(self, outcome: Any, seconds: float) -> None:
        self._outcome, self._seconds, self._calls = outcome, seconds, 0

    async def capacity(self) -> int | None:
        return None

    async def run(
        self, function: str, spec: Any, on_progress: Any = None, deadline_seconds: float | None = None
    ) -> Any:
        await asyncio.sleep(self._seconds)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        self._calls += 1
        return {"shard": f"{self._calls:064x}", **self._outcome}

    async def close(self) -> None:
        pass


async def test_broken_worker_pauses_and_the_other_plays_on():
    journal, clock, stop = MemoryJournal(), SystemClock(), asyncio.Event()
    bus = MemoryBus(journal, clock, producer="broker@laptop")
    feedback = FeedbackSettings.model_validate({"nodes": PAUSES})
    settings = RunSettings(configs=(GAMES[KEY],), feedback=feedback)

    async def publish(data: Any, event_id: str, subject: str | None = None) -> None:
        await bus.publish(originate(data, event_id=event_id, time=clock.now(), subject=subject))

    def host(daemon: str, node: str, outcome: Any = None, seconds: float = 0.0) -> Host:
        engine = None if outcome is None else Engine(outcome, seconds)
        ports = Ports(bus, MemoryStateStore(), clock, engine, Notifier(""))  # type: ignore[arg-type]
        identity = WorkerIdentity(f"{daemon}@{node}", node, JobContext(store="store"))
        return Host(DAEMONS[daemon], identity, f"{daemon}@{node}", ports, RHYTHM)

    def of(kind: type[Any]) -> list[Any]:
        return [event.data for event in history(journal, types={kind})]

    await publish(RunConfigured(run_id="r", settings=settings.model_dump(mode="json")), "configured")
    hosts = [
        host("selfplay_scheduler", "laptop"),
        host("selfplay_worker", "broken", JobFailed("play", "MissingBlob", "no such model", hint="", trace="")),
        host("selfplay_worker", "sound", PLAYED, 0.05),
        host("quality_monitor", "laptop", INSPECTED),
    ]
    async with asyncio.TaskGroup() as group, asyncio.timeout(120):
        for one in hosts:
            group.create_task(one.run(stop))
        await publish(ModelDistributed(model=MODEL, step=0, nodes=("laptop",)), "distributed", KEY)
        ticks = 0
        while len(of(NodeDegraded)) < 2:
            await publish(ClockTick(period_seconds=0.1), f"tick-{(ticks := ticks + 1)}")
            await asyncio.sleep(0.1)
        stop.set()
    await bus.close()
    asked = Counter(request.worker for request in of(SelfplayRequested))
    degraded = of(NodeDegraded)
    assert {one.worker for one in degraded} == {"selfplay_worker@broken"}
    assert "no such model" in degraded[0].error
    assert len(of(SelfplayFailed)) <= settings.feedback.nodes.failures + len(degraded)
    assert asked["selfplay_worker@sound"] > asked["selfplay_worker@broken"]
    assert {one.shard.worker for one in of(QualityScoreUpdated)} == {"selfplay_worker@sound"}
