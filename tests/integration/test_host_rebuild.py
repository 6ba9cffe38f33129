"""Rebuilt state: after losses, version changes and voided events (ADR-007, ADR-005)."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from bus_rig import until
from driving import trained
from host_stage import KEY, REQUEST, RESULT, WORKER, ScriptedEngine, Stage, WatchedBus, logged, rows_of

from flyball.app.bus import Batch
from flyball.app.bus.memory import MemoryBus
from flyball.app.controllers import TrainingTrigger
from flyball.app.events import (
    DaemonReady,
    Emission,
    EventVoided,
    QualityDegraded,
    Row,
    SelfplayComplete,
    Step,
    TrainingCompleted,
    TrainingRequested,
    TrainingUnblocked,
)
from flyball.app.events.frames import DeadLetter
from flyball.app.journal import history
from flyball.app.journal.memory import MemoryStateStore
from flyball.daemons.host import Host
from flyball.daemons.registry import DAEMONS
from flyball.daemons.saved_state import PROGRESS_KEY, SCHEMAS_KEY
from flyball.daemons.spec import DaemonSpec
from flyball.daemons.supervisor import Notifier


def of_another_version(states: MemoryStateStore) -> None:
    """Replace saved state with rows that this version can't read."""
    cursor, _ = states.load()
    unfit = {("TrainingTrigger", KEY): b'{"another": 1}', ("TrainingTrigger", "gone"): b'{"trainings": "x"}'}
    states.save(cursor, {**unfit, SCHEMAS_KEY: b'{"TrainingTrigger": "another"}'})


@pytest.mark.parametrize("lost", [False, True], ids=["of another version", "lost"])
async def test_a_rebuild_comes_to_the_same_and_decides_nothing(stage, lost, capsys):
    """Guarantee (ADR-001): state is a fold over the journal."""
    states = MemoryStateStore()
    await stage.until(DaemonReady, stage.host("training_trigger", states))
    cursor, rows = states.load()[0], rows_of(states)
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
    assert rows_of(states) == rows
    assert "rebuilding" in logged(capsys)
    await stage.until(DaemonReady, stage.host("training_trigger", states), count=3)
    assert "rebuilding" not in logged(capsys)
    await stage.bus.close()


async def test_rows_of_another_version_are_carried_over(stage, capsys):
    """Removed fields are dropped, and no history is folded again."""
    states = MemoryStateStore()
    await stage.until(DaemonReady, stage.host("training_trigger", states))
    cursor, rows = states.load()[0], rows_of(states)
    row = json.loads(rows["TrainingTrigger", KEY])
    old = json.dumps({**row, "trainings": 41, "gone": {"x": 1}}).encode()
    schemas = json.dumps({**json.loads(rows[SCHEMAS_KEY]), "TrainingTrigger": "another"}).encode()
    states.save(cursor, {("TrainingTrigger", KEY): old, SCHEMAS_KEY: schemas})
    await stage.until(DaemonReady, stage.host("training_trigger", states), count=2)
    saved = states.load()[1]
    assert json.loads(saved["TrainingTrigger", KEY]) == {**row, "trainings": 41}
    assert saved[SCHEMAS_KEY] == rows[SCHEMAS_KEY]
    assert "carried over" in logged(capsys)
    assert len(stage.of(TrainingRequested)) == 2


async def test_state_of_this_version_is_not_rebuilt(stage):
    states = MemoryStateStore()
    await stage.until(DaemonReady, stage.host("training_trigger", states))
    states.save(states.load()[0], {("FeedbackState", KEY): None, ("TrainingTrigger", KEY): None})
    await stage.until(DaemonReady, stage.host("training_trigger", states), count=2)
    assert ("TrainingTrigger", KEY) not in states.load()[1]


class Talkative(TrainingTrigger):
    """A version of the trigger that publishes every decision twice."""

    def step(self, rows: Any, event: Any, states: Any) -> Any:
        step = super().step(rows, event, states)
        return Step(step.rows, step.emissions * 2)


@pytest.mark.parametrize("lost", [False, True], ids=["of another version", "lost"])
async def test_a_rebuild_drops_what_was_decided_otherwise(lost, stage, monkeypatch, capsys):
    """Rebuild with a version that decides otherwise."""
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
    assert "decisions that differ from the recorded ones are dropped" in logged(capsys)


class SlowBus(MemoryBus):
    """A bus that delivers one event at a time, with pauses."""

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
    """Return a rebuild's saved progress."""
    row = states.load()[1].get(PROGRESS_KEY)
    return json.loads(row)["position"] if row else 0


class Systemd(Notifier):
    """A notifier that remembers its messages."""

    def __init__(self) -> None:
        super().__init__("")
        self.told = list[str]()

    def tell(self, *states: str) -> None:
        self.told += states


async def test_a_killed_rebuild_goes_on_where_it_was(stage, capsys):
    """Kill a rebuild, whose progress is saved beside the old rows."""
    states, systemd = MemoryStateStore(), Systemd()
    for number in range(8):
        await stage.publish(trained(), f"training {number}")
    await stage.until(DaemonReady, stage.host("training_trigger", states))
    cursor, rows = states.load()[0], rows_of(states)
    of_another_version(states)
    stage.bus = SlowBus(stage.journal, stage.clock)
    await kill_at(stage.host("training_trigger", states), lambda: progress(states))
    position = progress(states)
    assert len(stage.of(DaemonReady)) == 1, "it was killed too late"
    assert position < cursor
    assert states.load()[0] == cursor
    assert states.load()[1]["TrainingTrigger", KEY] == b'{"another": 1}'
    capsys.readouterr()
    await stage.until(DaemonReady, stage.host("training_trigger", states, notifier=systemd), count=2)
    assert re.search(rf"rebuilding state.*position\S*[=:] *\D*{position}\b", logged(capsys))
    assert any(state.startswith("EXTEND_TIMEOUT_USEC=") for state in systemd.told)
    assert any(state.startswith("STATUS=catching up: ") for state in systemd.told)
    assert states.load()[0] > cursor
    assert rows_of(states) == rows
    stage.check_nothing_twice()
    await stage.bus.close()


class Counts(Row, frozen=True):
    """Positions that were folded."""

    positions: tuple[int, ...] = ()


class Picky:
    """A reducer that remembers positions. It fails at the shard of zeros while ``picky``."""

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
    """A reducer that folds everything."""

    name, picky = "Easy", False


PICKY = DaemonSpec("picky", "counts", (Picky, Easy))


def positions_in(states: MemoryStateStore) -> dict[str, tuple[int, ...]]:
    """Return the folded positions in the saved rows, by reducer."""
    rows = states.load()[1]
    return {
        reducer.name: Counts.from_json(rows[reducer.name, KEY]).positions
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


async def test_host_failed_event_becomes_a_dead_letter_and_it_goes_on(stage, capsys):
    states = MemoryStateStore()
    first, poison, last = await degrade(stage, "a", "0", "b")
    await stage.beats(stage.host(PICKY, states))
    assert positions_in(states) == {"Picky": (first, last), "Easy": (first, poison, last)}
    (dead,) = stage.journal.dead_letters()
    assert (dead.position, dead.reporter) == (poison, "picky@laptop/Picky")
    assert dead.error.startswith("ZeroDivisionError: ")
    assert "event could not be folded" in logged(capsys)
    await stage.beats(stage.host(PICKY, MemoryStateStore()))
    assert len(stage.journal.dead_letters()) == 1, "folded again, it fails again and is told once"


@pytest.mark.parametrize("states", [None, MemoryStateStore()], ids=["state lost", "state kept"])
async def test_host_voided_event_is_left_out_by_every_reducer(stage, states):
    saved = MemoryStateStore()
    first, poison, last = await degrade(stage, "a", "0", "b")
    await stage.beats(stage.host(PICKY, saved))
    await stage.publish(EventVoided(position=poison, reason="nonsense"), "void", None)
    after = saved if states else MemoryStateStore()
    await stage.until(DaemonReady, stage.host(PICKY, after), count=2)
    assert positions_in(after) == {"Picky": (first, last), "Easy": (first, last)}
    starts = len(stage.of(DaemonReady))
    await stage.until(DaemonReady, stage.host(PICKY, after), count=starts + 1)
    assert positions_in(after) == {"Picky": (first, last), "Easy": (first, last)}


async def test_host_event_voided_while_it_runs_is_left_out_at_once(stage):
    states = MemoryStateStore()
    first, poison, last = await degrade(stage, "a", "0", "b")
    async with stage.running(stage.host(PICKY, states)):
        await until(lambda: "Easy" in positions_in(states))
        await stage.publish(EventVoided(position=poison, reason="nonsense"), "void", None)
        (latest,) = await degrade(stage, "c")
        await until(lambda: positions_in(states).get("Easy") == (first, last, latest))
    assert positions_in(states)["Picky"] == (first, last, latest)


async def test_host_void_publishes_nothing_about_the_past(stage):
    """Recorded history stays: the trigger does not repeat its requests."""
    states = MemoryStateStore()
    await stage.until(TrainingRequested, stage.host("training_trigger", states), count=2)
    asked = list(history(stage.journal, types={TrainingRequested}))
    done = TrainingCompleted(
        request_id=asked[0].id, model="a" * 64, parent=None, step=0, rows=1, metrics=None, seconds=1.0
    )
    await stage.publish(done, "done", asked[0].subject)
    position = stage.journal.head
    await stage.beats(stage.host("training_trigger", states))
    await stage.publish(EventVoided(position=position, reason="bad"), "void", None)
    ready = len(stage.of(DaemonReady))
    await stage.until(DaemonReady, stage.host("training_trigger", states), count=ready + 1)
    assert len(stage.of(TrainingRequested)) == len(asked)


class BlockedBus(MemoryBus):
    """A bus that never keeps a dead letter."""

    async def bury(self, dead_letter: DeadLetter) -> None:
        await asyncio.Event().wait()


async def test_host_killed_while_it_buries_folds_nothing_twice(stage):
    """Kill the host while it keeps a dead letter. Each sign of life comes with a save."""
    states = MemoryStateStore()
    await stage.until(DaemonReady, stage.host(PICKY, states))
    stage.bus = BlockedBus(stage.journal, stage.clock, producer="broker@laptop")
    (poison,) = await degrade(stage, "0")
    await kill_at(stage.host(PICKY, states), lambda: len(stage.signs) >= 3)
    stage.bus = MemoryBus(stage.journal, stage.clock, producer="broker@laptop")
    await stage.until(DaemonReady, stage.host(PICKY, states), count=2)
    assert positions_in(states) == {"Easy": (poison,)}


async def kill_at(host: Host, due: Callable[[], Any]) -> None:
    """Run a host, and kill it once a condition holds."""
    async with asyncio.TaskGroup() as group, asyncio.timeout(200):
        running = group.create_task(host.run(asyncio.Event()))
        await until(due)
        running.cancel()


class SlowableBus(SlowBus):
    """A bus that is slow for subscriptions that begin while ``slow``."""

    slow = False

    def subscribe(self, *arguments: Any, **named: Any) -> Any:
        return (super() if self.slow else super(SlowBus, self)).subscribe(*arguments, **named)


async def test_host_killed_after_a_void_keeps_rows_with_their_cursor(stage):
    """Kill the host during the rebuild after a void."""
    states = MemoryStateStore()
    stage.bus = bus = SlowableBus(stage.journal, stage.clock, producer="broker@laptop")
    positions: tuple[int, ...] = ()

    async def void() -> None:
        nonlocal positions
        await until(lambda: stage.of(DaemonReady))
        positions = tuple(await degrade(stage, *"abcdef"))
        await until(lambda: positions_in(states).get("Easy") == positions)
        bus.slow = True
        await stage.publish(EventVoided(position=positions[0], reason="nonsense"), "void", None)

    async with asyncio.TaskGroup() as group:
        group.create_task(void())
        await kill_at(stage.host(PICKY, states), lambda: progress(states))
    assert positions_in(states)["Easy"] == positions
    assert states.load()[0] >= positions[-1]


class Echo(Picky):
    """A reducer that publishes a decision about each event, once."""

    name, picky = "Echo", False
    emits = frozenset({TrainingUnblocked})

    def step(self, rows: Any, event: Any) -> Any:
        return Step(super().step(rows, event).rows, (Emission(TrainingUnblocked(reason=event.data.shard[0])),))


ECHO = DaemonSpec("echo", "decisions", (Echo,))


class TurningBus(MemoryBus):
    """A bus that calls ``turns[n]`` before the n-th subscription begins."""

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
                    await asyncio.sleep(0.2)  # some signs of life, with which progress is saved
            yield replace(batch, events=())


REBUILD_OF_VOID = 4
"""The subscription from which a host rebuilds its state after a void; three come before it."""


async def test_host_second_void_while_catching_up_loses_no_decision():
    stage = Stage()
    await stage.configure()
    stage.bus = bus = TurningBus(stage.journal, stage.clock, producer="broker@laptop")
    first, second = await degrade(stage, "a", "b")

    async def more() -> None:
        await degrade(stage, "c")
        await stage.publish(EventVoided(position=second, reason="nonsense"), "second void", None)

    bus.turns[REBUILD_OF_VOID] = more
    async with stage.running(stage.host(ECHO, MemoryStateStore())):
        await until(lambda: stage.of(DaemonReady))
        await stage.publish(EventVoided(position=first, reason="nonsense"), "first void", None)
        await until(lambda: len(stage.of(DaemonReady)) >= 2)
    assert [data.reason for data in stage.of(TrainingUnblocked)] == ["a", "b", "c"]


async def test_host_job_that_ends_while_state_is_rebuilt_is_published():
    stage, engine = Stage(), ScriptedEngine(RESULT)
    await stage.configure()
    stage.bus = bus = TurningBus(stage.journal, stage.clock, producer="broker@laptop")
    (done,) = await degrade(stage, "a")
    await stage.publish(REQUEST, "request")
    engine.release.clear()

    async def end_job() -> None:
        engine.release.set()
        await asyncio.sleep(0.1)

    bus.turns[REBUILD_OF_VOID] = end_job
    async with stage.running(stage.host("selfplay_worker", MemoryStateStore(), engine)):
        await until(lambda: engine.calls)
        await stage.publish(EventVoided(position=done, reason="nonsense"), "void", None)
        await until(lambda: len(stage.of(DaemonReady)) >= 2)
    assert len(stage.of(SelfplayComplete)) == 1
