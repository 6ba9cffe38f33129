"""Daemons of one kind on two machines share their jobs. The jobs of a lost daemon are done by the other."""

import asyncio
from collections.abc import Sequence
from typing import Any

from host_stage import KEY, MODEL, OTHER_KEY, SETTINGS, ScriptedEngine

from flyball.app.bus.memory import MemoryBus
from flyball.app.engine import JobFailed
from flyball.app.events import (
    Cause,
    DaemonReady,
    NodeLost,
    NodeReturned,
    Payload,
    RunConfigured,
    TrainingCompleted,
    TrainingRequested,
    TrainingStarted,
    follow,
    originate,
)
from flyball.app.job_specs import JobContext
from flyball.app.journal import history
from flyball.app.journal.memory import MemoryJournal, MemoryStateStore
from flyball.daemons.clock import SystemClock
from flyball.daemons.host import Host, Ports, Rhythm
from flyball.daemons.jobs import Job, JobRunner, WorkerIdentity
from flyball.daemons.registry import DAEMONS
from flyball.daemons.supervisor import Notifier
from flyball.daemons.training import Trainer, TrainerRow

TRAINED = {"model": "b" * 64, "parent": MODEL, "step": 1, "rows": 0, "metrics": None}
REQUEST = TrainingRequested(base_model=MODEL, shards=(), step=0, seed=1, learning_rate=1e-3, epochs=1)


class Machines:
    """A bus with a trainer on each of some machines. Their engines wait until they are released."""

    def __init__(self, *nodes: str) -> None:
        self.journal, self.clock = MemoryJournal(), SystemClock()
        self.bus = MemoryBus(self.journal, self.clock, producer="broker@head")
        self.engines = {node: ScriptedEngine(TRAINED) for node in nodes}
        for engine in self.engines.values():
            engine.release.clear()

    def host(self, node: str) -> Host:
        identity = WorkerIdentity(f"training@{node}", node, JobContext(store="store"))
        bus = self.bus.connection(identity.name)
        ports = Ports(bus, MemoryStateStore(), self.clock, self.engines[node], Notifier(""))
        return Host(DAEMONS["training"], identity, f"boot-{node}", ports, Rhythm(0.05, 0.2))

    async def publish(self, data: Any, event_id: str, key: str | None = None) -> None:
        await self.bus.publish(originate(data, event_id=event_id, time=self.clock.now(), subject=key))

    async def until(self, payload: type[Any], count: int) -> list[tuple[str, Any]]:
        """Wait for ``count`` events of a type; return them with their sources."""
        while len(found := [(one.source, one.data) for one in history(self.journal, types={payload})]) < count:
            await asyncio.sleep(0.01)
        return found


async def test_two_trainers_share_jobs_and_a_lost_one_s_count_once():
    machines, stop = Machines("one", "two"), asyncio.Event()
    await machines.publish(RunConfigured(run_id="r", settings=SETTINGS.model_dump(mode="json")), "configured")
    async with asyncio.TaskGroup() as group, asyncio.timeout(200):
        for node in machines.engines:
            group.create_task(machines.host(node).run(stop))
        await machines.until(DaemonReady, 2)
        await machines.publish(REQUEST, "first", KEY)
        await machines.publish(REQUEST, "second", OTHER_KEY)
        started = await machines.until(TrainingStarted, 2)
        assert {source: fact.request_id for source, fact in started} == {
            "training@one": "first",
            "training@two": "second",
        }

        await machines.publish(NodeLost(daemon="training", node="one", silent_seconds=10), "lost")
        machines.engines["two"].release.set()
        done = await machines.until(TrainingCompleted, 2)
        assert [source for source, _ in done] == ["training@two"] * 2
        assert {fact.request_id for _, fact in done} == {"first", "second"}

        await machines.publish(NodeReturned(daemon="training", node="one", silent_seconds=20), "returned")
        machines.engines["one"].release.set()
        await machines.publish(REQUEST, "third", KEY)
        done = await machines.until(TrainingCompleted, 3)
        assert done[-1][1].request_id == "third"
        stop.set()
    assert machines.engines["one"].calls + machines.engines["two"].calls == 4  # the lost machine's job was done again
    await machines.bus.close()


async def test_a_failure_and_a_result_of_one_job_have_one_id():
    """Finish a job on one machine, and fail it on another."""
    cause = Cause("request", KEY, "request", None, 1, 0)
    ids = list[str]()

    async def publish(by: str, job: Job[Any], facts: Sequence[Payload]) -> None:
        ids.extend(
            follow(fact, job.cause, by=by, index=0).id for fact in facts if not isinstance(fact, TrainingStarted)
        )

    for outcome in (TRAINED, JobFailed("train", "RuntimeError", "no", hint="", trace="")):
        trainer = Trainer(SETTINGS, WorkerIdentity("training@one", "one", JobContext(store="store")))
        runner = JobRunner(ScriptedEngine(outcome), 1, publish)
        async with asyncio.TaskGroup() as group:
            runner.reconcile(group, trainer, trainer.jobs({KEY: TrainerRow(cause=cause, request=REQUEST)}, {}))
    assert len(ids) == 2
    assert len(set(ids)) == 1
