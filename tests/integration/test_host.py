"""The daemon host: publishes before it saves, retries lost jobs, drains, and counts nothing twice (ADR-002)."""

import asyncio
import json
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from driving import rated, trained
from structlog.testing import capture_logs

from app.bus import Batch, MemoryBus
from app.config import GAMES, RunSettings
from app.engine import JobFailed, WorkerLost
from app.engine.scatter import DEATHS
from app.events import (
    DaemonHeartbeat,
    DaemonReady,
    DaemonStopped,
    Emission,
    EventVoided,
    QualityDegraded,
    Row,
    RunConfigured,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
    ShardRef,
    Step,
    TrainingCompleted,
    TrainingFailed,
    TrainingRequested,
    TrainingUnblocked,
    originate,
)
from app.events.frames import DeadLetter
from app.feedback import TrainingTrigger
from app.journal import MemoryJournal, MemoryStateStore, history
from app.runtime.clock import SystemClock
from app.runtime.fold import Fold
from app.runtime.host import Host, Ports, Rhythm
from app.runtime.notify import Notifier
from app.runtime.registry import DAEMONS, DaemonSpec
from app.runtime.row_schema import SCHEMAS_KEY
from app.runtime.saved_state import PROGRESS_KEY
from app.runtime.work import Place

KEY, MODEL = "tic_tac_toe_2p", "a" * 64
OTHER_KEY = "connect_four_2p"
SETTINGS = RunSettings(configs=(GAMES[KEY], GAMES[OTHER_KEY]))
WORKER = SETTINGS.selfplay_workers[0]
RESULT = {"shard": "b" * 64, "rows": 9, "games": 1, "mean_length": 9.0, "truncated": 0, "seconds": 0.1}
REQUEST = SelfplayRequested(worker=WORKER, model=MODEL, lineups=(), games=1, seed=1, temperature=1.0, probe=False)


class ScriptedEngine:
    """Plays a script of outcomes: an exception to raise, or a result; the last one again and again."""

    def __init__(self, *script: Any) -> None:
        self.script, self.calls, self.release = list(script), 0, asyncio.Event()
        self.release.set()

    async def run(
        self, function: str, spec: dict[str, Any], on_progress: Any = None, deadline_seconds: float | None = None
    ) -> dict[str, Any]:
        self.calls += 1
        outcome = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        await self.release.wait()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def close(self) -> None:
        pass


class Stage:
    """A bus with a configured run, and daemons that come and go on it."""

    def __init__(self) -> None:
        self.journal, self.clock, self.boots = MemoryJournal(), SystemClock(), 0
        self.bus = MemoryBus(self.journal, self.clock, producer="broker@laptop")

    async def publish(self, data: Any, event_id: str, subject: str | None = KEY) -> None:
        await self.bus.publish(originate(data, event_id=event_id, time=self.clock.now(), subject=subject))

    async def configure(self) -> None:
        await self.publish(RunConfigured(run_id="r", settings=SETTINGS.model_dump(mode="json")), "configured", None)

    def host(
        self,
        daemon: str | DaemonSpec,
        states: MemoryStateStore,
        engine: ScriptedEngine | None = None,
        notifier: Notifier | None = None,
        sink: Any = None,
    ) -> Host:
        self.boots += 1
        spec = daemon if isinstance(daemon, DaemonSpec) else DAEMONS[daemon]
        place = Place(name=WORKER if engine else f"{spec.name}@laptop", node="laptop", store="store")
        ports = Ports(self.bus, states, self.clock, engine, notifier or Notifier(""), sink)
        return Host(spec, place, f"boot-{self.boots}", ports, Rhythm(0.05, 0.2))

    async def until(self, payload: type[Any], host: Host, count: int = 1) -> list[Any]:
        """Run a host until there are ``count`` events of a type; return them."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group, asyncio.timeout(20):
            running = group.create_task(host.run(stop))
            while len(self.of(payload)) < count and not running.done():
                await asyncio.sleep(0.01)
            stop.set()
        return self.of(payload)

    def of(self, payload: type[Any]) -> list[Any]:
        return [event.data for event in history(self.journal, types={payload})]

    def check_nothing_twice(self) -> None:
        ids = Counter(event.id for event in history(self.journal))
        assert max(ids.values()) == 1


@pytest.fixture
async def stage():
    stage = Stage()
    await stage.configure()
    yield stage
    await stage.bus.close()


class PowerCut(Exception):
    """The machine lost power."""


class FailingStore(MemoryStateStore):
    """Loses power at its first save."""

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
    assert len(stage.of(TrainingRequested)) == 2
    await stage.until(DaemonHeartbeat, stage.host("training_trigger", states))
    assert len(stage.of(TrainingRequested)) == 2
    stage.check_nothing_twice()


async def test_a_lost_compute_process_costs_a_retry_and_nothing_else(stage):
    await stage.publish(REQUEST, "request")
    engine = ScriptedEngine(WorkerLost("killed"), WorkerLost("killed"), RESULT)
    (done,) = await stage.until(SelfplayComplete, stage.host("selfplay_worker", MemoryStateStore(), engine))
    assert (done.request_id, engine.calls) == ("request", 3)
    assert done.shard == ShardRef(worker="selfplay_worker@laptop", key="b" * 64, rows=9, games=1, model=MODEL, seed=1)


class Shown:
    """A sink that notes what it is told."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.flushed: list[str] = []

    def take(self, event: Any) -> None:
        self.taken.append(event.id)

    def flush(self) -> None:
        self.flushed = list(self.taken)


async def test_a_sink_is_told_of_everything_once_and_goes_on_where_it_was(stage):
    states, first, second = MemoryStateStore(), Shown(), Shown()
    await stage.publish(trained(), "training")
    await stage.until(DaemonReady, stage.host("curves", states, sink=first))
    assert first.flushed == ["configured", "training"]
    await stage.publish(rated(), "rating")
    await stage.until(DaemonReady, stage.host("curves", states, sink=second), count=2)
    assert second.flushed == ["rating"]


async def test_a_job_that_kills_its_process_every_time_is_given_up(stage):
    await stage.publish(REQUEST, "request")
    engine = ScriptedEngine(WorkerLost("killed"))
    (failed,) = await stage.until(SelfplayFailed, stage.host("selfplay_worker", MemoryStateStore(), engine))
    assert (failed.request_id, engine.calls) == ("request", DEATHS)


async def test_a_job_that_raises_is_a_fact_of_its_own_and_not_retried(stage):
    await stage.publish(REQUEST, "request")
    engine = ScriptedEngine(JobFailed("f", "ValueError", "no such game", hint="Look.", trace=""))
    (failed,) = await stage.until(SelfplayFailed, stage.host("selfplay_worker", MemoryStateStore(), engine))
    assert "no such game" in failed.error
    assert engine.calls == 1


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
    (line,) = [line for line in logs if line["event"] == said.seed_name]
    (recorded,) = history(stage.journal, types={said})
    assert (line["log_level"], line["event_id"], line["causation_id"]) == (level, recorded.id, "request")


async def test_asked_to_stop_it_waits_for_its_job_only_so_long_and_takes_it_up_again(stage):
    await stage.publish(REQUEST, "request")
    states, stuck = MemoryStateStore(), ScriptedEngine(RESULT)
    stuck.release.clear()
    await stage.until(DaemonHeartbeat, stage.host("selfplay_worker", states, stuck))
    assert (stuck.calls, stage.of(SelfplayComplete)) == (1, [])
    assert len(stage.of(DaemonStopped)) == 1
    await stage.until(SelfplayComplete, stage.host("selfplay_worker", states, ScriptedEngine(RESULT)))
    stage.check_nothing_twice()


async def test_heartbeat_names_requests_that_run_or_come_next(stage):
    for number in range(4):
        await stage.publish(REQUEST, f"request-{number}")
    stuck = ScriptedEngine(RESULT)
    stuck.release.clear()
    beats = await stage.until(DaemonHeartbeat, stage.host("selfplay_worker", MemoryStateStore(), stuck), count=5)
    assert (beats[-1].jobs, beats[-1].requests) == (1, ("request-0", "request-1"))


async def test_a_job_whose_result_came_from_elsewhere_is_cancelled(stage):
    await stage.publish(REQUEST, "request")
    engine, stop = ScriptedEngine(RESULT), asyncio.Event()
    engine.release.clear()
    async with asyncio.TaskGroup() as group, asyncio.timeout(20):
        group.create_task(stage.host("selfplay_worker", MemoryStateStore(), engine).run(stop))
        while not engine.calls:
            await asyncio.sleep(0.01)
        await stage.publish(SelfplayFailed(request_id="request", worker=WORKER, error="elsewhere"), "other")
        await asyncio.sleep(0.1)
        engine.release.set()
        stop.set()
    assert len(stage.of(SelfplayFailed)) == 1
    assert not stage.of(SelfplayComplete)


async def test_only_after_catching_up_it_is_ready_and_runs_jobs(stage):
    await stage.publish(REQUEST, "request")
    await stage.publish(SelfplayFailed(request_id="request", worker=WORKER, error="done before"), "result")
    engine = ScriptedEngine(RESULT)
    (ready,) = await stage.until(DaemonReady, stage.host("selfplay_worker", MemoryStateStore(), engine))
    assert ready.position >= 3
    assert engine.calls == 0


async def test_undeclared_emission_is_a_failure_of_its_reducer(record):
    class Chatty(DAEMONS["model_lifecycle"].controllers[0]):  # type: ignore[misc]
        reads = frozenset({QualityDegraded})
        emits = frozenset()

        def step(self, rows: Any, event: Any, states: Any) -> Any:
            from app.events import Emission, Step

            return Step(emissions=(Emission(event.data),))

    fold = Fold((Chatty,))
    fold.feed([record(RunConfigured(run_id="r", settings=SETTINGS.model_dump(mode="json")))])
    data = QualityDegraded(request_id="r", worker=WORKER, shard="c" * 64, reason="x")
    (failure,) = fold.feed([record(data, KEY)]).failures
    assert failure.by == Chatty.name
    assert "UndeclaredEmission" in failure.error
    assert "QUALITY_DEGRADED" in failure.error


class DeafBus(MemoryBus):
    """A bus whose broker has gone: what is published is never acknowledged."""

    gone = False

    async def publish_many(self, envelopes: Any) -> tuple[int, ...]:
        if self.gone:
            await asyncio.Event().wait()
        return await super().publish_many(envelopes)


class TalkativeEngine(ScriptedEngine):
    """Reports progress when it is told to, and never ends."""

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
        on_progress({"epoch": 1, "epochs": 2, **losses, **self.losses})
        return await super().run(function, spec, on_progress)


@pytest.mark.parametrize("when", ["before", "while draining"])
async def test_without_a_broker_it_stops_all_the_same(when):
    stage = Stage()
    stage.bus = DeafBus(stage.journal, stage.clock, producer="broker@laptop")
    await stage.configure()
    shard = ShardRef(worker="selfplay_worker@laptop", key="b" * 64, rows=9, games=1, model=MODEL, seed=1)
    request = TrainingRequested(base_model=MODEL, shards=(shard,), step=0, seed=1, learning_rate=0.1, epochs=1)
    await stage.publish(request, "request")
    engine, stop = TalkativeEngine(), asyncio.Event()
    async with asyncio.timeout(20):
        running = asyncio.gather(stage.host("training", MemoryStateStore(), engine).run(stop))
        while not engine.calls:
            await asyncio.sleep(0.01)
        stage.bus.gone = True
        if when == "before":
            engine.talk.set()
            await asyncio.sleep(0.05)
        stop.set()
        await asyncio.sleep(0.05)
        engine.talk.set()
        await running
    assert not stage.of(DaemonStopped)
    await stage.bus.close()


class WatchedBus(MemoryBus):
    """Remembers the ids it was asked to publish."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked = list[str]()

    async def publish_many(self, envelopes: Any) -> tuple[int, ...]:
        self.asked += [envelope.id for envelope in envelopes]
        return await super().publish_many(envelopes)


async def test_with_its_state_lost_it_publishes_nothing_that_the_journal_holds():
    """Guarantee: exactly-once decisions do not depend on how many ids the broker remembers."""
    stage = Stage()
    await stage.configure()
    await stage.until(DaemonHeartbeat, stage.host("training_trigger", MemoryStateStore()))
    known = {event.id for event in history(stage.journal)}
    stage.bus = WatchedBus(stage.journal, stage.clock)
    await stage.until(DaemonHeartbeat, stage.host("training_trigger", MemoryStateStore()), count=2)
    assert stage.bus.asked
    assert not known & set(stage.bus.asked)
    await stage.bus.close()


async def test_what_was_concluded_but_never_published_is_published_when_it_is_ready():
    stage = Stage()
    stage.bus = DeafBus(stage.journal, stage.clock, producer="broker@laptop")
    await stage.configure()
    states, stop = MemoryStateStore(), asyncio.Event()
    stage.bus.gone = True
    async with asyncio.timeout(20):
        running = asyncio.gather(stage.host("training_trigger", states).run(stop))
        await asyncio.sleep(0.2)
        stop.set()
        await running
    assert not stage.of(TrainingRequested)
    assert states.load()[0] == 0, "nothing is saved before it is published"
    stage.bus.gone = False
    await stage.until(DaemonHeartbeat, stage.host("training_trigger", states))
    assert len(stage.of(TrainingRequested)) == 2


def of_another_version(states: MemoryStateStore) -> None:
    """Make saved state what another version might have left: rows that this one can't read."""
    cursor, _ = states.load()
    unfit = {("TrainingTrigger", KEY): b'{"another": 1}', ("TrainingTrigger", "gone"): b'{"trainings": "x"}'}
    states.save(cursor, {**unfit, SCHEMAS_KEY: b'{"TrainingTrigger": "another"}'})


@pytest.mark.parametrize("lost", [False, True], ids=["of another version", "lost"])
async def test_a_rebuild_comes_to_the_same_and_decides_nothing(lost, capsys):
    """Guarantee (ADR-002): state is a fold over the journal."""
    stage, states = Stage(), MemoryStateStore()
    await stage.configure()
    await stage.until(DaemonReady, stage.host("training_trigger", states))
    cursor, rows = states.load()
    known = {event.id for event in history(stage.journal)}
    if lost:
        states = MemoryStateStore()
    else:
        of_another_version(states)
    stage.bus = WatchedBus(stage.journal, stage.clock)
    await stage.until(DaemonReady, stage.host("training_trigger", states), count=2)
    assert not known & set(stage.bus.asked)
    stage.check_nothing_twice()
    assert states.load()[0] > cursor
    assert states.load()[1] == rows
    assert "rebuilding" in capsys.readouterr().out
    await stage.until(DaemonReady, stage.host("training_trigger", states), count=3)
    assert "rebuilding" not in capsys.readouterr().out
    await stage.bus.close()


async def test_rows_of_another_version_are_carried_over(stage, capsys):
    """A field that is gone is left out, a new one has its default, and no history is folded again."""
    states = MemoryStateStore()
    await stage.until(DaemonReady, stage.host("training_trigger", states))
    cursor, rows = states.load()
    row = json.loads(rows["TrainingTrigger", KEY])
    del row["blocked"]
    old = json.dumps({**row, "trainings": 41, "gone": {"x": 1}}).encode()
    schemas = json.dumps({**json.loads(rows[SCHEMAS_KEY]), "TrainingTrigger": "another"}).encode()
    states.save(cursor, {("TrainingTrigger", KEY): old, SCHEMAS_KEY: schemas})
    await stage.until(DaemonReady, stage.host("training_trigger", states), count=2)
    saved = states.load()[1]
    assert json.loads(saved["TrainingTrigger", KEY]) == {**row, "trainings": 41, "blocked": False}
    assert saved[SCHEMAS_KEY] == rows[SCHEMAS_KEY]
    assert "carried over" in capsys.readouterr().out
    assert len(stage.of(TrainingRequested)) == 2


async def test_state_of_this_version_is_not_rebuilt(stage):
    states = MemoryStateStore()
    await stage.until(DaemonReady, stage.host("training_trigger", states))
    states.save(states.load()[0], {("FeedbackState", KEY): None, ("TrainingTrigger", KEY): None})
    await stage.until(DaemonReady, stage.host("training_trigger", states), count=2)
    assert ("TrainingTrigger", KEY) not in states.load()[1]


class Talkative(TrainingTrigger):
    """A version that decides otherwise: it says everything twice."""

    def step(self, rows: Any, event: Any, states: Any) -> Any:
        step = super().step(rows, event, states)
        return Step(step.rows, step.emissions * 2)


@pytest.mark.parametrize("lost", [False, True], ids=["of another version", "lost"])
async def test_a_rebuild_drops_what_was_decided_otherwise(lost, stage, monkeypatch, capsys):
    """What is recorded stays what was decided, and no row waits for the answer to a request that nobody published."""
    states = MemoryStateStore()
    await stage.until(DaemonReady, stage.host("training_trigger", states))
    if lost:
        states = MemoryStateStore()
    else:
        of_another_version(states)
    monkeypatch.setitem(DAEMONS, "training_trigger", replace(DAEMONS["training_trigger"], controllers=(Talkative,)))
    await stage.until(DaemonReady, stage.host("training_trigger", states), count=2)
    assert len(stage.of(TrainingRequested)) == 2
    assert not [name for owner, name in states.load()[1] if owner == "TrainingTrigger"]
    assert "decisions that were taken otherwise are dropped" in capsys.readouterr().out


class SlowBus(MemoryBus):
    """Hands out one event at a time, and takes its time."""

    @asynccontextmanager
    async def subscribe(self, *arguments: Any, **named: Any) -> AsyncIterator[AsyncIterator[Batch]]:
        async def slowly(subscription: AsyncIterator[Batch]) -> AsyncIterator[Batch]:
            async for batch in subscription:
                for event in batch.events:
                    await asyncio.sleep(0.1)
                    yield replace(batch, events=(event,), position=event.sequence)
                yield replace(batch, events=())

        async with super().subscribe(*arguments, **named) as subscription:
            yield slowly(subscription)


def progress(states: MemoryStateStore) -> int:
    """Return how far a rebuild has come by what is saved of it."""
    row = states.load()[1].get(PROGRESS_KEY)
    return json.loads(row)["position"] if row else 0


class Systemd(Notifier):
    """Remembers what it is told."""

    def __init__(self) -> None:
        super().__init__("")
        self.told = list[str]()

    def tell(self, *states: str) -> None:
        self.told += states


async def test_a_killed_rebuild_goes_on_where_it_was(stage, capsys):
    """The old rows stay until the rebuild has caught up; what it has done so far is saved beside them."""
    states, systemd = MemoryStateStore(), Systemd()
    for number in range(8):
        await stage.publish(trained(), f"training {number}")
    await stage.until(DaemonReady, stage.host("training_trigger", states))
    cursor, rows = states.load()
    of_another_version(states)
    stage.bus = SlowBus(stage.journal, stage.clock)
    async with asyncio.TaskGroup() as group, asyncio.timeout(20):
        killed = group.create_task(stage.host("training_trigger", states).run(asyncio.Event()))
        while not progress(states):
            await asyncio.sleep(0.01)
        killed.cancel()
    position = progress(states)
    assert len(stage.of(DaemonReady)) == 1, "it was killed too late"
    assert position < cursor
    assert states.load()[0] == cursor
    assert states.load()[1]["TrainingTrigger", KEY] == b'{"another": 1}'
    capsys.readouterr()
    await stage.until(DaemonReady, stage.host("training_trigger", states, notifier=systemd), count=2)
    assert re.search(rf"rebuilding state.*position\S*[=:] *\D*{position}\b", capsys.readouterr().out)
    assert any(state.startswith("EXTEND_TIMEOUT_USEC=") for state in systemd.told)
    assert any(state.startswith("STATUS=catching up: ") for state in systemd.told)
    assert states.load()[0] > cursor
    assert states.load()[1] == rows
    stage.check_nothing_twice()
    await stage.bus.close()


async def test_draining_starts_no_further_job(stage):
    await stage.publish(REQUEST, "first")
    await stage.publish(REQUEST, "second", OTHER_KEY)
    engine, stop = ScriptedEngine(RESULT), asyncio.Event()
    engine.release.clear()
    async with asyncio.timeout(20):
        running = asyncio.gather(stage.host("selfplay_worker", MemoryStateStore(), engine).run(stop))
        while not engine.calls:
            await asyncio.sleep(0.01)
        stop.set()
        await asyncio.sleep(0.05)
        engine.release.set()
        await running
    assert engine.calls == 1
    assert len(stage.of(SelfplayComplete)) == 1


async def test_a_request_for_a_newer_model_replaces_those_for_the_older(stage):
    for name in ("first", "second"):
        await stage.publish(REQUEST, name)
    await stage.publish(REQUEST.model_copy(update={"model": "d" * 64}), "third")
    engine = ScriptedEngine(RESULT)
    (done,) = await stage.until(SelfplayComplete, stage.host("selfplay_worker", MemoryStateStore(), engine))
    assert (done.request_id, engine.calls) == ("third", 1)


async def test_the_watchdog_hears_of_the_event_loop_while_the_broker_is_away(stage, tmp_path):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(path))
        systemd.setblocking(False)
        stage.bus, stop = DeafBus(stage.journal, stage.clock, producer="broker@laptop"), asyncio.Event()
        host = stage.host("training_trigger", MemoryStateStore(), notifier=Notifier(str(path)))
        async with asyncio.timeout(20):
            running = asyncio.gather(host.run(stop))
            heard = await _hear(systemd, b"READY=1")
            stage.bus.gone = True
            for _ in range(5):
                heard += await _hear(systemd, b"WATCHDOG=1")
            stop.set()
            await running
            heard += await _hear(systemd, b"STOPPING=1")
    assert heard.index(b"READY=1") < heard.index(b"STOPPING=1")


async def _hear(systemd: socket.socket, state: bytes) -> bytes:
    heard = b""
    while state not in heard:
        heard += await asyncio.get_running_loop().sock_recv(systemd, 4096)
    return heard


class Counts(Row, frozen=True):
    """Positions that were folded."""

    positions: tuple[int, ...] = ()


class Picky:
    """Remembers positions; cannot fold what is about the shard of zeros while ``picky``."""

    name, row, picky = "Picky", Counts, True
    reads, emits = frozenset({QualityDegraded}), frozenset()

    def __init__(self, settings: Any) -> None:
        pass

    def step(self, rows: Any, event: Any) -> Any:
        if self.picky and event.data.shard == "0" * 64:
            raise ZeroDivisionError("no such shard")
        before = rows[KEY].positions if KEY in rows else ()
        return Step({KEY: Counts(positions=(*before, event.sequence))})


class Easy(Picky):
    """Folds everything."""

    name, picky = "Easy", False


PICKY = DaemonSpec("picky", "counts", (Picky, Easy))


def positions_in(states: MemoryStateStore) -> dict[str, tuple[int, ...]]:
    """Return what the reducers have saved."""
    rows = states.load()[1]
    return {
        reducer.name: Counts.model_validate_json(rows[reducer.name, KEY]).positions
        for reducer in (Picky, Easy)
        if (reducer.name, KEY) in rows
    }


async def degrade(stage: Stage, *shards: str) -> list[int]:
    """Publish facts about shards; return their positions."""
    first = stage.journal.head + 1
    for shard in shards:
        data = QualityDegraded(request_id="r", worker=WORKER, shard=shard * 64, reason="x")
        await stage.publish(data, f"degraded-{stage.journal.head}")
    return list(range(first, first + len(shards)))


async def test_host_failed_event_becomes_a_dead_letter_and_it_goes_on(capsys):
    stage, states = Stage(), MemoryStateStore()
    await stage.configure()
    first, poison, last = await degrade(stage, "a", "0", "b")
    await stage.until(DaemonHeartbeat, stage.host(PICKY, states))
    assert positions_in(states) == {"Picky": (first, last), "Easy": (first, poison, last)}
    (letter,) = stage.journal.dead_letters()
    assert (letter.position, letter.reporter) == (poison, "picky@laptop/Picky")
    assert letter.error == "ZeroDivisionError: no such shard"
    assert "event could not be folded" in capsys.readouterr().out
    await stage.until(DaemonHeartbeat, stage.host(PICKY, MemoryStateStore()), count=2)
    assert len(stage.journal.dead_letters()) == 1, "folded again, it fails again and is told once"


@pytest.mark.parametrize("states", [None, MemoryStateStore()], ids=["state lost", "state kept"])
async def test_host_voided_event_is_left_out_by_every_reducer(states):
    stage, saved = Stage(), MemoryStateStore()
    await stage.configure()
    first, poison, last = await degrade(stage, "a", "0", "b")
    await stage.until(DaemonHeartbeat, stage.host(PICKY, saved))
    await stage.publish(EventVoided(position=poison, reason="nonsense"), "void", None)
    after = saved if states else MemoryStateStore()
    await stage.until(DaemonReady, stage.host(PICKY, after), count=2)
    assert positions_in(after) == {"Picky": (first, last), "Easy": (first, last)}
    starts = len(stage.of(DaemonReady))
    await stage.until(DaemonReady, stage.host(PICKY, after), count=starts + 1)
    assert positions_in(after) == {"Picky": (first, last), "Easy": (first, last)}


async def test_host_event_voided_while_it_runs_is_left_out_at_once():
    stage, states, stop = Stage(), MemoryStateStore(), asyncio.Event()
    await stage.configure()
    first, poison, last = await degrade(stage, "a", "0", "b")
    async with asyncio.TaskGroup() as group, asyncio.timeout(20):
        group.create_task(stage.host(PICKY, states).run(stop))
        while "Easy" not in positions_in(states):
            await asyncio.sleep(0.01)
        await stage.publish(EventVoided(position=poison, reason="nonsense"), "void", None)
        (latest,) = await degrade(stage, "c")
        while positions_in(states).get("Easy") != (first, last, latest):
            await asyncio.sleep(0.01)
        stop.set()
    assert positions_in(states)["Picky"] == (first, last, latest)


async def test_host_void_publishes_nothing_about_the_past():
    """History stays as it was: the trigger asked for trainings, and does not ask again."""
    stage, states = Stage(), MemoryStateStore()
    await stage.configure()
    await stage.until(TrainingRequested, stage.host("training_trigger", states), count=2)
    asked = list(history(stage.journal, types={TrainingRequested}))
    done = TrainingCompleted(request_id=asked[0].id, model="a" * 64, parent=None, step=0, rows=1, metrics=None)
    await stage.publish(done, "done", asked[0].subject)
    position = stage.journal.head
    await stage.until(DaemonHeartbeat, stage.host("training_trigger", states), count=len(stage.of(DaemonHeartbeat)) + 1)
    await stage.publish(EventVoided(position=position, reason="bad"), "void", None)
    ready = len(stage.of(DaemonReady))
    await stage.until(DaemonReady, stage.host("training_trigger", states), count=ready + 1)
    assert len(stage.of(TrainingRequested)) == len(asked)


class BlockedBus(MemoryBus):
    """Never keeps a dead letter."""

    async def bury(self, letter: DeadLetter) -> None:
        await asyncio.Event().wait()


async def test_host_killed_while_it_buries_folds_nothing_twice():
    """A heartbeat saves rows only with the cursor that they belong to."""
    stage, states = Stage(), MemoryStateStore()
    await stage.configure()
    await stage.until(DaemonReady, stage.host(PICKY, states))
    stage.bus = BlockedBus(stage.journal, stage.clock, producer="broker@laptop")
    (poison,) = await degrade(stage, "0")
    beats = len(stage.of(DaemonHeartbeat))
    await kill_at(stage.host(PICKY, states), lambda: len(stage.of(DaemonHeartbeat)) >= beats + 3)
    stage.bus = MemoryBus(stage.journal, stage.clock, producer="broker@laptop")
    await stage.until(DaemonReady, stage.host(PICKY, states), count=2)
    assert positions_in(states) == {"Easy": (poison,)}


async def kill_at(host: Host, due: Callable[[], Any]) -> None:
    """Run a host, and kill it when something has happened."""
    async with asyncio.TaskGroup() as group, asyncio.timeout(20):
        running = group.create_task(host.run(asyncio.Event()))
        while not due():
            await asyncio.sleep(0.01)
        running.cancel()


class SlowableBus(SlowBus):
    """Is slow for subscriptions that begin while it is told to be."""

    slow = False

    def subscribe(self, *arguments: Any, **named: Any) -> Any:
        return (super() if self.slow else super(SlowBus, self)).subscribe(*arguments, **named)


async def test_host_killed_after_a_void_keeps_rows_with_their_cursor():
    """The old rows stay with the cursor that they were saved with last, until the rebuild replaces them."""
    stage, states = Stage(), MemoryStateStore()
    await stage.configure()
    stage.bus = bus = SlowableBus(stage.journal, stage.clock, producer="broker@laptop")
    positions: tuple[int, ...] = ()

    async def void() -> None:
        nonlocal positions
        while not stage.of(DaemonReady):
            await asyncio.sleep(0.01)
        positions = tuple(await degrade(stage, *"abcdef"))
        while positions_in(states).get("Easy") != positions:
            await asyncio.sleep(0.01)
        bus.slow = True
        await stage.publish(EventVoided(position=positions[0], reason="nonsense"), "void", None)

    async with asyncio.TaskGroup() as group:
        group.create_task(void())
        await kill_at(stage.host(PICKY, states), lambda: progress(states))
    assert positions_in(states)["Easy"] == positions
    assert states.load()[0] >= positions[-1]


class Echo(Picky):
    """Publishes a decision about each event, once."""

    name, picky = "Echo", False
    emits = frozenset({TrainingUnblocked})

    def step(self, rows: Any, event: Any) -> Any:
        return Step(super().step(rows, event).rows, (Emission(TrainingUnblocked(reason=event.data.shard[0])),))


ECHO = DaemonSpec("echo", "decisions", (Echo,))


class TurningBus(MemoryBus):
    """Calls ``turns[n]`` before the n-th subscription begins."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.turns: dict[int, Callable[[], Awaitable[None]]] = {}
        self.begun = 0

    @asynccontextmanager
    async def subscribe(self, *arguments: Any, **named: Any) -> AsyncIterator[Any]:
        self.begun += 1
        if self.begun in self.turns:
            await self.turns[self.begun]()
        async with super().subscribe(*arguments, **named) as subscription:
            yield self.handed_out(subscription)

    async def handed_out(self, subscription: AsyncIterator[Batch]) -> AsyncIterator[Batch]:
        async for batch in subscription:
            for event in batch.events:
                yield replace(batch, events=(event,), position=event.sequence)
                if type(event.data) is QualityDegraded:
                    await asyncio.sleep(0.2)  # some heartbeats
            yield replace(batch, events=())


REBUILD_OF_VOID = 4
"""The subscription from which a host rebuilds its state after a void; three come before it."""


async def test_host_second_void_while_catching_up_loses_no_decision():
    stage, stop = Stage(), asyncio.Event()
    await stage.configure()
    stage.bus = bus = TurningBus(stage.journal, stage.clock, producer="broker@laptop")
    first, second = await degrade(stage, "a", "b")

    async def more() -> None:
        await degrade(stage, "c")
        await stage.publish(EventVoided(position=second, reason="nonsense"), "second void", None)

    bus.turns[REBUILD_OF_VOID] = more
    async with asyncio.TaskGroup() as group, asyncio.timeout(20):
        group.create_task(stage.host(ECHO, MemoryStateStore()).run(stop))
        while not stage.of(DaemonReady):
            await asyncio.sleep(0.01)
        await stage.publish(EventVoided(position=first, reason="nonsense"), "first void", None)
        while len(stage.of(DaemonReady)) < 2:
            await asyncio.sleep(0.01)
        stop.set()
    assert [data.reason for data in stage.of(TrainingUnblocked)] == ["a", "b", "c"]


async def test_host_job_that_ends_while_state_is_rebuilt_is_published():
    stage, stop, engine = Stage(), asyncio.Event(), ScriptedEngine(RESULT)
    await stage.configure()
    stage.bus = bus = TurningBus(stage.journal, stage.clock, producer="broker@laptop")
    (done,) = await degrade(stage, "a")
    await stage.publish(REQUEST, "request")
    engine.release.clear()

    async def end_job() -> None:
        engine.release.set()
        await asyncio.sleep(0.1)

    bus.turns[REBUILD_OF_VOID] = end_job
    async with asyncio.TaskGroup() as group, asyncio.timeout(20):
        group.create_task(stage.host("selfplay_worker", MemoryStateStore(), engine).run(stop))
        while not engine.calls:
            await asyncio.sleep(0.01)
        await stage.publish(EventVoided(position=done, reason="nonsense"), "void", None)
        while len(stage.of(DaemonReady)) < 2:
            await asyncio.sleep(0.01)
        stop.set()
    assert len(stage.of(SelfplayComplete)) == 1


async def test_host_job_with_an_impossible_result_is_a_failure(stage):
    await stage.publish(REQUEST, "request")
    engine = ScriptedEngine({**RESULT, "shard": "not a hash"})
    (failed,) = await stage.until(SelfplayFailed, stage.host("selfplay_worker", MemoryStateStore(), engine))
    assert "key" in failed.error
    assert engine.calls == 1


async def test_host_job_with_impossible_progress_is_a_failure(stage):
    """Losses beyond all bounds are finite and no divergence, and must not stop the daemon that trains."""
    request = TrainingRequested(base_model=None, shards=(), step=0, seed=1, learning_rate=0.1, epochs=1)
    await stage.publish(request, "request")
    engine = TalkativeEngine(value_loss=1e30)
    engine.talk.set()
    (failed,) = await stage.until(TrainingFailed, stage.host("training", MemoryStateStore(), engine))
    assert "value_loss" in failed.error
