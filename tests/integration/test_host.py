"""The daemon host publishes before it saves, and counts nothing twice (ADR-001). It retries lost jobs, and drains."""

import asyncio
import socket
from typing import Any

import pytest
from builders import training_of
from bus_rig import until
from driving import rated, trained
from host_stage import MODEL, OTHER_KEY, REQUEST, RESULT, WORKER, ScriptedEngine, Stage, WatchedBus
from structlog.testing import capture_logs

from flyball.app.bus.memory import MemoryBus
from flyball.app.core import FlyballError
from flyball.app.engine import JobFailed, WorkerLost
from flyball.app.engine.port import DEATHS
from flyball.app.events import (
    DaemonFailed,
    DaemonReady,
    DaemonStopped,
    SelfplayComplete,
    SelfplayFailed,
    ShardRef,
    TrainingFailed,
    TrainingRequested,
)
from flyball.app.journal import history
from flyball.app.journal.memory import MemoryStateStore
from flyball.daemons.supervisor import Notifier


class PowerCut(Exception):
    """A loss of the machine's power."""


class FailingStore(MemoryStateStore):
    """A store that loses power at its first save."""

    failed = False

    def save(self, cursor: int, changed: Any) -> None:
        if not self.failed:
            self.failed = True
            raise PowerCut
        super().save(cursor, changed)


async def test_killed_between_publishing_and_saving_it_decides_once(stage):
    states = FailingStore()
    with pytest.raises(ExceptionGroup) as error:
        await stage.until(DaemonStopped, stage.host("training_trigger", states))
    assert error.group_contains(PowerCut)
    assert [failed.error for failed in stage.of(DaemonFailed)] == ["PowerCut"]
    assert len(stage.of(TrainingRequested)) == 2
    await stage.beats(stage.host("training_trigger", states))
    assert len(stage.of(TrainingRequested)) == 2
    stage.check_nothing_twice()


async def test_a_lost_compute_process_costs_a_retry_and_nothing_else(stage):
    await stage.publish(REQUEST, "request")
    engine = ScriptedEngine(WorkerLost("killed"), WorkerLost("killed"), RESULT)
    (done,) = await stage.until(SelfplayComplete, stage.host("selfplay_worker", MemoryStateStore(), engine))
    assert (done.request_id, engine.calls) == ("request", 3)
    assert done.shard == ShardRef(worker="selfplay_worker@laptop", key="b" * 64, rows=9, games=1, model=MODEL, seed=1)


class Shown:
    """A sink that notes the events that it gets."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.flushed: list[str] = []

    def take(self, event: Any) -> None:
        self.taken.append(event.id)

    def flush(self) -> None:
        self.flushed = list(self.taken)


async def test_sink_gets_each_event_once_also_after_a_restart(stage):
    states, first, second = MemoryStateStore(), Shown(), Shown()
    await stage.publish(trained(), "training")
    await stage.until(DaemonReady, stage.host("curves", states, sink=first))
    assert first.flushed == ["configured", "training"]
    await stage.publish(rated(), "rating")
    await stage.until(DaemonReady, stage.host("curves", states, sink=second), count=2)
    assert second.flushed == ["rating"]


class Shadow:
    """A companion that notes the counts that it is shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[int, int]] = []
        self.ran = False

    def show(self, fold: Any, head: int) -> None:
        counts = fold.rows("EventCounts").values()
        self.shown.append((head, sum(row.events.get("TRAINING_COMPLETED", 0) for row in counts)))

    async def run(self, bus: Any) -> None:
        self.ran = True
        await asyncio.Event().wait()


async def test_companion_is_shown_counts_that_outlive_the_daemon(stage):
    states, first, second = MemoryStateStore(), Shadow(), Shadow()
    await stage.publish(trained(), "training")
    await stage.until(DaemonReady, stage.host("monitoring", states, companion=first))
    assert first.ran
    assert first.shown[-1][1] == 1
    await stage.publish(trained(), "again")
    await stage.until(DaemonReady, stage.host("monitoring", states, companion=second), count=2)
    assert {count for _, count in second.shown} == {2}, "shown only once the daemon has caught up"


async def test_companion_that_fails_ends_the_daemon(stage):
    class Failing(Shadow):
        async def run(self, bus: Any) -> None:
            raise FlyballError("the port is taken")

    with pytest.raises(ExceptionGroup):
        await stage.host("monitoring", MemoryStateStore(), companion=Failing()).run(asyncio.Event())
    assert [fact.error for fact in stage.of(DaemonFailed)] == ["the port is taken"]


@pytest.mark.parametrize(
    ("outcome", "calls", "said"),
    [
        (WorkerLost("killed"), DEATHS, ""),
        (JobFailed("f", "ValueError", "no such game", hint="Look.", trace=""), 1, "no such game"),
        ({**RESULT, "shard": "not a hash"}, 1, "SelfplayResult\nshard"),
    ],
    ids=["kills its process every time", "raises", "has an impossible result"],
)
async def test_a_job_that_fails_is_a_fact_of_its_own(stage, outcome, calls, said):
    await stage.publish(REQUEST, "request")
    engine = ScriptedEngine(outcome)
    (failed,) = await stage.until(SelfplayFailed, stage.host("selfplay_worker", MemoryStateStore(), engine))
    assert (failed.request_id, engine.calls) == ("request", calls)
    assert said in failed.error


@pytest.mark.parametrize(
    ("outcome", "said", "level"),
    [
        (RESULT, SelfplayComplete, "debug"),
        (JobFailed("f", "ValueError", "no", hint="", trace=""), SelfplayFailed, "info"),
    ],
)
async def test_host_logs_notable_facts_at_info(stage, outcome, said, level):
    await stage.publish(REQUEST, "request")
    with capture_logs() as logs:
        await stage.until(said, stage.host("selfplay_worker", MemoryStateStore(), ScriptedEngine(outcome)))
    (line,) = [line for line in logs if line["event"] == said.event_name]
    (recorded,) = history(stage.journal, types={said})
    assert (line["log_level"], line["event_id"], line["causation_id"]) == (level, recorded.id, "request")


async def test_host_stops_before_a_long_job_and_repeats_it_later(stage):
    await stage.publish(REQUEST, "request")
    states, stuck = MemoryStateStore(), ScriptedEngine(RESULT)
    stuck.release.clear()
    await stage.beats(stage.host("selfplay_worker", states, stuck))
    assert (stuck.calls, stage.of(SelfplayComplete)) == (1, [])
    assert len(stage.of(DaemonStopped)) == 1
    await stage.until(SelfplayComplete, stage.host("selfplay_worker", states, ScriptedEngine(RESULT)))
    stage.check_nothing_twice()


async def test_sign_of_life_counts_jobs_that_run_or_come_next(stage):
    for number in range(4):
        await stage.publish(REQUEST, f"request-{number}")
    stuck = ScriptedEngine(RESULT)
    stuck.release.clear()
    signs = await stage.beats(stage.host("selfplay_worker", MemoryStateStore(), stuck), count=5)
    assert (signs[-1].jobs, signs[-1].requests, signs[-1].lag) == (1, 4, 0)
    assert signs[-1].position == stage.of(DaemonReady)[-1].position


async def test_a_job_whose_result_came_from_elsewhere_is_cancelled(stage):
    await stage.publish(REQUEST, "request")
    engine = ScriptedEngine(RESULT)
    engine.release.clear()
    async with stage.running(stage.host("selfplay_worker", MemoryStateStore(), engine)):
        await until(lambda: engine.calls)
        await stage.publish(SelfplayFailed(request_id="request", worker=WORKER, error="elsewhere"), "other")
        await asyncio.sleep(0.1)
        engine.release.set()
    assert len(stage.of(SelfplayFailed)) == 1
    assert not stage.of(SelfplayComplete)


async def test_only_after_catching_up_it_is_ready_and_runs_jobs(stage):
    await stage.publish(REQUEST, "request")
    await stage.publish(SelfplayFailed(request_id="request", worker=WORKER, error="done before"), "result")
    engine = ScriptedEngine(RESULT)
    (ready,) = await stage.until(DaemonReady, stage.host("selfplay_worker", MemoryStateStore(), engine))
    assert ready.position >= 3
    assert engine.calls == 0


class DeafBus(MemoryBus):
    """A bus whose broker may go: then no event is acknowledged."""

    gone = False

    async def publish_many(self, envelopes: Any) -> tuple[int, ...]:
        if self.gone:
            await asyncio.Event().wait()
        return await super().publish_many(envelopes)


class TalkativeEngine(ScriptedEngine):
    """An engine that reports progress on request, and never ends."""

    def __init__(self, **losses: float) -> None:
        super().__init__(RESULT)
        self.losses = losses
        self.talk = asyncio.Event()
        self.release.clear()

    async def run(
        self, function: str, spec: dict[str, Any], on_progress: Any = None, deadline_seconds: float | None = None
    ) -> dict[str, Any]:
        self.calls += 1
        await self.talk.wait()
        losses = dict.fromkeys(("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"), 0.5)
        on_progress({"epoch": 1, "epochs": 2, "metrics": losses | self.losses})
        return await super().run(function, spec, on_progress)


@pytest.mark.parametrize("when", ["before", "while draining"])
async def test_without_a_broker_it_stops_all_the_same(when):
    stage = Stage()
    stage.bus = DeafBus(stage.journal, stage.clock, producer="broker@laptop")
    await stage.configure()
    shard = ShardRef(worker="selfplay_worker@laptop", key="b" * 64, rows=9, games=1, model=MODEL, seed=1)
    await stage.publish(training_of(shard, model=MODEL), "request")
    engine = TalkativeEngine()
    async with stage.running(stage.host("training", MemoryStateStore(), engine)) as stop:
        await until(lambda: engine.calls)
        stage.bus.gone = True
        if when == "before":
            engine.talk.set()
            await asyncio.sleep(0.05)
        stop.set()
        await asyncio.sleep(0.05)
        engine.talk.set()
    assert not stage.of(DaemonStopped)
    await stage.bus.close()


async def test_host_without_its_state_publishes_no_recorded_event():
    """Guarantee: decisions are recorded exactly once. This does not depend on how many ids the broker remembers."""
    stage = Stage()
    await stage.configure()
    await stage.beats(stage.host("training_trigger", MemoryStateStore()))
    known = {event.id for event in history(stage.journal)}
    stage.bus = WatchedBus(stage.journal, stage.clock)
    await stage.beats(stage.host("training_trigger", MemoryStateStore()))
    assert stage.bus.asked
    assert not known & set(stage.bus.asked)
    await stage.bus.close()


async def test_unpublished_conclusions_are_published_at_the_next_start():
    stage = Stage()
    stage.bus = DeafBus(stage.journal, stage.clock, producer="broker@laptop")
    await stage.configure()
    states = MemoryStateStore()
    stage.bus.gone = True
    async with stage.running(stage.host("training_trigger", states)):
        await asyncio.sleep(0.2)
    assert not stage.of(TrainingRequested)
    assert states.load()[0] == 0, "nothing is saved before it is published"
    stage.bus.gone = False
    await stage.beats(stage.host("training_trigger", states))
    assert len(stage.of(TrainingRequested)) == 2


async def test_draining_starts_no_further_job(stage):
    await stage.publish(REQUEST, "first")
    await stage.publish(REQUEST, "second", OTHER_KEY)
    engine = ScriptedEngine(RESULT)
    engine.release.clear()
    async with stage.running(stage.host("selfplay_worker", MemoryStateStore(), engine)) as stop:
        await until(lambda: engine.calls)
        stop.set()
        await asyncio.sleep(0.05)
        engine.release.set()
    assert engine.calls == 1
    assert len(stage.of(SelfplayComplete)) == 1


async def test_request_for_a_newer_model_replaces_older_requests(stage):
    for name in ("first", "second"):
        await stage.publish(REQUEST, name)
    await stage.publish(REQUEST.replace(model="d" * 64), "third")
    engine = ScriptedEngine(RESULT)
    (done,) = await stage.until(SelfplayComplete, stage.host("selfplay_worker", MemoryStateStore(), engine))
    assert (done.request_id, engine.calls) == ("third", 1)


async def test_watchdog_is_notified_while_the_broker_is_away(stage, tmp_path):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(path))
        systemd.setblocking(False)
        stage.bus = DeafBus(stage.journal, stage.clock, producer="broker@laptop")
        host = stage.host("training_trigger", MemoryStateStore(), notifier=Notifier(str(path)))
        async with stage.running(host):
            heard = await _hear(systemd, b"READY=1")
            stage.bus.gone = True
            for _ in range(5):
                heard += await _hear(systemd, b"WATCHDOG=1")
        heard += await _hear(systemd, b"STOPPING=1")
    assert heard.index(b"READY=1") < heard.index(b"STOPPING=1")
    drain_usec = int(heard.partition(b"STOPPING=1\nEXTEND_TIMEOUT_USEC=")[2].split()[0])
    assert drain_usec > 200_000  # more than the stage's time to drain


async def _hear(systemd: socket.socket, state: bytes) -> bytes:
    heard = b""
    while state not in heard:
        heard += await asyncio.get_running_loop().sock_recv(systemd, 4096)
    return heard


async def test_host_job_with_impossible_progress_is_a_failure(stage):
    """Report losses beyond all bounds, which must not stop the training daemon."""
    await stage.publish(training_of(model=None), "request")
    engine = TalkativeEngine(value_loss=1e30)
    engine.talk.set()
    (failed,) = await stage.until(TrainingFailed, stage.host("training", MemoryStateStore(), engine))
    assert "value_loss" in failed.error


class MuteEngine(ScriptedEngine):
    """The engine of a cluster that answers only once, at the start."""

    asked = 0

    async def capacity(self) -> int | None:
        self.asked += 1
        if self.asked > 1:
            await asyncio.Event().wait()
        return 1


async def test_daemon_shows_life_while_its_cluster_does_not_answer(stage):
    """Show life without an answer."""
    engine = MuteEngine(RESULT)
    signs = await stage.beats(stage.host("selfplay_worker", MemoryStateStore(), engine), count=5)
    assert engine.asked == 2
    assert len(signs) >= 5
