"""Contract of buses: ZeroMQ with a broker, and one within a process."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from bus_rig import StepClock, address, broker_thread, checked, degraded, gather
from keyed_bus import KeyRing, client, keyed_broker

from flyball.app.bus import ZmqBus
from flyball.app.bus.memory import MemoryBus
from flyball.app.bus.ports import BusClosed, BusError, PublishRefused, Sign
from flyball.app.events import (
    ClockTick,
    DaemonStarted,
    DaemonStopped,
    NodeLost,
    NodeReturned,
    ParityChecked,
    QualityDegraded,
    RunConfigured,
    encode,
    originate,
)
from flyball.app.events.frames import DeadLetter, Draft, Frame, FrameBuilder, seal
from flyball.app.journal import Snapshot
from flyball.app.journal.memory import MemoryJournal


@pytest.fixture
def journal():
    return MemoryJournal()


@pytest.fixture
def clock():
    return StepClock()


@asynccontextmanager
async def closing(bus):
    try:
        yield bus
    finally:
        await bus.close()


@pytest.fixture(params=["memory", "zmq", "curve"])
async def bus(request, journal, clock, tmp_path):
    if request.param == "memory":
        async with closing(MemoryBus(journal, clock, producer="test@here")) as bus:
            yield bus
    elif request.param == "curve":
        ring = KeyRing(tmp_path)
        ring.admit("here", "head")
        with keyed_broker(journal, ring, clock=clock) as broker:
            async with closing(client(broker, ring, "test@here")) as bus:
                yield bus
    else:
        with broker_thread(journal, address(tmp_path), clock=clock) as broker:
            async with closing(ZmqBus(broker.endpoint, producer="test@here", deadline_s=20)) as bus:
                yield bus


async def test_published_events_have_positions_and_cursors_are_checked(bus, journal, clock):
    configured = RunConfigured(run_id="run", settings={})
    silent = {"daemon": "training", "node": "gpu1", "silent_seconds": 9.0}
    for foreign in (configured, NodeLost(**silent), NodeReturned(**silent)):
        with pytest.raises(PublishRefused, match="Only the broker publishes"):
            await bus.publish(originate(foreign, event_id="foreign", time=clock.now()))
    assert journal.head == 0
    assert await bus.publish(checked(0)) == 1
    assert await bus.publish_many([checked(1), checked(2)]) == (2, 3)
    assert await bus.publish_many([]) == ()
    with pytest.raises(BusError, match="beyond the journal's end"):
        async with bus.subscribe(after=7):
            pass


async def test_what_is_published_arrives_with_its_stamps(bus, clock):
    clock.seconds = 12.5
    await bus.publish(checked(0))
    async with bus.subscribe(after=0) as subscription:
        [event] = await gather(subscription, 1)
    assert event.envelope == checked(0)
    assert (event.sequence, event.source) == (1, "test@here")
    assert event.recordedtime == clock.now()


async def test_late_subscriber_reads_from_the_start_or_a_position(bus):
    await bus.publish_many([checked(i) for i in range(1000)])
    async with bus.subscribe(after=0) as subscription:
        events = await gather(subscription, 1000)
    assert [e.sequence for e in events] == list(range(1, 1001))
    assert [e.id for e in events] == [checked(i).id for i in range(1000)]
    async with bus.subscribe(after=997) as subscription:
        assert [e.sequence for e in await gather(subscription, 3)] == [998, 999, 1000]


async def test_without_a_position_a_subscription_begins_at_the_head(bus):
    await bus.publish(checked(0))
    async with bus.subscribe() as subscription:
        await bus.publish(checked(1))
        assert [e.sequence for e in await gather(subscription, 1)] == [2]


async def test_a_live_subscriber_gets_each_event_once_and_in_order(bus):
    async with bus.subscribe() as subscription, asyncio.TaskGroup() as group:
        reading = group.create_task(gather(subscription, 300))
        for i in range(100):
            await asyncio.gather(*(bus.publish(checked(3 * i + k)) for k in range(3)))
    assert [e.sequence for e in reading.result()] == list(range(1, 301))


async def test_all_subscribers_see_the_same_order_whenever_they_came(bus):
    """Guarantee (ADR-004): total order."""
    async with bus.subscribe(after=0) as early, asyncio.TaskGroup() as group:
        for who in ("a", "b", "c"):
            group.create_task(publish_slowly(bus, who, 20))
        seen = await gather(early, 60)
    async with bus.subscribe(after=0) as late:
        again = await gather(late, 60)
    assert [event.id for event in seen] == [event.id for event in again]
    assert [event.sequence for event in seen] == list(range(1, 61))


async def publish_slowly(bus, who, count):
    for number in range(count):
        await bus.publish(checked(number, who=who))


async def test_subscription_to_types_advances_over_other_events(bus):
    await bus.publish_many([degraded(i) for i in range(5)] + [checked(0), degraded(9), checked(1)])
    await bus.publish_many([degraded(i) for i in range(20, 30)])
    async with bus.subscribe([ParityChecked], after=0) as subscription:
        events, position = [], 0
        async for batch in subscription:
            events += batch.events
            assert batch.position > position
            position = batch.position
            if batch.position >= batch.head:
                break
    assert [(e.sequence, type(e.data)) for e in events] == [(6, ParityChecked), (8, ParityChecked)]
    assert position == 18


async def test_subscriptions_to_several_types_say_that_they_caught_up(bus):
    await bus.publish_many([degraded(0), checked(0), degraded(1)])
    async with bus.subscribe([ParityChecked, QualityDegraded, ClockTick], after=0) as subscription:
        assert [e.sequence for e in await gather(subscription, 3)] == [1, 2, 3]
    for after in (0, 3, None):
        async with bus.subscribe([ClockTick], after=after) as subscription:
            batch = await anext(subscription)
            while batch.position < batch.head:
                batch = await anext(subscription)
            assert (batch.events, batch.position, batch.head) == ((), 3, 3)


async def test_republished_event_gets_its_first_acknowledgement(bus, journal):
    first = await bus.publish_many([checked(i) for i in range(3)])
    assert await bus.publish(checked(1)) == first[1]
    assert await bus.publish_many([checked(3), checked(0), checked(4), checked(3)]) == (4, 1, 5, 4)
    assert await bus.publish_many([checked(i) for i in range(5)]) == (1, 2, 3, 4, 5)
    async with bus.subscribe(after=0) as subscription:
        assert [e.id for e in await gather(subscription, 5)] == [checked(i).id for i in range(5)]
    assert journal.head == 5


async def test_the_recorded_time_never_decreases(bus, clock):
    for seconds in (10, 5, 20):
        clock.seconds = seconds
        await bus.publish(checked(seconds))
    async with bus.subscribe(after=0) as subscription:
        times = [e.recordedtime.second for e in await gather(subscription, 3)]
    assert times == [10, 10, 20]


async def test_subscriptions_do_not_disturb_each_other(bus):
    async with bus.subscribe(after=0) as one, bus.subscribe([QualityDegraded], after=0) as two:
        await bus.publish_many([checked(0), degraded(0), checked(1)])
        assert [e.sequence for e in await gather(two, 1)] == [2]
        await two.close()
        assert [e.sequence for e in await gather(one, 3)] == [1, 2, 3]


async def test_closing_a_subscription_ends_its_iteration(bus):
    async with bus.subscribe(after=0) as subscription, asyncio.TaskGroup() as group:
        reading = group.create_task(gather(subscription, 10))
        await bus.publish(checked(0))
        await asyncio.sleep(0)
        await subscription.close()
    assert len(reading.result()) <= 1
    await subscription.close()


async def test_a_closed_bus_says_so(bus):
    async with bus.subscribe(after=0) as subscription:
        await bus.close()
        with pytest.raises(BusClosed):
            await bus.publish(checked(0))
        with pytest.raises(StopAsyncIteration):
            await anext(subscription)


async def test_unreadable_event_is_a_dead_letter_and_the_rest_arrives(request, journal, clock, tmp_path):
    builder = FrameBuilder("old@there")
    builder.add([Draft(1, "flyball.quality.parity_checked", "hex7_2p", b'{"type": "flyball.no.such"}')])
    builder.add([Draft(2, "flyball.no.such", "", b"not even JSON")])
    frame = Frame.parse(builder.build(9, 0))
    journal.append([seal(frame, first=1, recorded_us=1, source="old@there")])

    async def check(bus):
        assert await bus.publish(checked(0)) == 3
        async with bus.subscribe(after=0) as subscription:
            assert [e.sequence for e in await gather(subscription, 1)] == [3]
        await bus.publish(checked(1))  # whatever was sent before it has arrived

    async with closing(MemoryBus(journal, clock)) as bus:
        await check(bus)
    journal_for_broker = MemoryJournal()
    journal_for_broker.append([seal(frame, first=1, recorded_us=1, source="old@there")])
    with broker_thread(journal_for_broker, address(tmp_path), clock=clock) as broker:
        async with closing(ZmqBus(broker.endpoint, producer="new@here", deadline_s=20)) as bus:
            await check(bus)
    for first, second in (journal.dead_letters(), journal_for_broker.dead_letters()):
        assert (first.position, first.producer, second.position) == (1, "old@there", 2)
        assert "flyball.no.such" in first.error
        assert second.body == b"not even JSON"


async def test_event_unlike_its_frame_header_is_a_dead_letter(journal, clock):
    builder = FrameBuilder("liar@there")
    builder.add([Draft(1, "flyball.quality.parity_checked", "another_2p", encode(checked(0)))])
    builder.add([Draft(2, "flyball.quality.parity_checked", "hex7_2p", encode(degraded(0)))])
    journal.append([seal(Frame.parse(builder.build(9, 0)), first=1, recorded_us=1, source="liar@there")])
    async with closing(MemoryBus(journal, clock)) as bus, bus.subscribe(after=0) as subscription:
        batch = await anext(subscription)
    assert (batch.events, batch.position) == ((), 2)
    assert ["its frame says" in dead.error for dead in journal.dead_letters()] == [True, True]


async def test_bus_dead_letter_about_a_position_is_kept_once(bus, journal):
    dead = DeadLetter(await bus.publish(checked(0)), "p@a", "feedback@laptop/LossWatch", "no", b"{}")
    for error in ("no", "no again"):
        await bus.bury(replace(dead, error=error))
    await bus.bury(replace(dead, reporter="feedback@laptop/another"))
    assert [(kept.reporter, kept.error) for kept in journal.dead_letters()] == [
        ("feedback@laptop/LossWatch", "no"),
        ("feedback@laptop/another", "no"),
    ]


LIFE = Sign(position=3, lag=1, jobs=2, requests=4)


async def say_started(bus, clock, daemon="test", node="here"):
    started = DaemonStarted(daemon=daemon, node=node, pid=1, version="1")
    await bus.publish(originate(started, event_id=f"{daemon} started", time=clock.now()))


async def test_bus_shows_the_latest_sign_of_daemons_that_run(bus, clock, journal):
    bus.show_life(LIFE)
    assert await bus.present() == (), "this producer never started"
    await say_started(bus, clock, daemon="other")
    bus.show_life(LIFE)
    [present] = await bus.present()
    assert (present.daemon, present.sign) == ("other", None), "life counts for its own name only"
    await say_started(bus, clock)
    for sign in (LIFE.replace(lag=7), LIFE):
        bus.show_life(sign)
    [present] = [one for one in await bus.present() if one.daemon == "test"]
    assert (present.node, present.lost, present.sign) == ("here", False, LIFE)
    assert journal.head == 2, "signs are not recorded"
    stopped = DaemonStopped(daemon="test", node="here", position=1)
    await bus.publish(originate(stopped, event_id="stopped", time=clock.now()))
    bus.show_life(LIFE)
    assert [one.daemon for one in await bus.present()] == ["other"]


async def test_snapshot_is_read_as_far_as_it_is_wanted(bus, journal, monkeypatch):
    """Workers of other machines have no access to its file."""
    assert await bus.snapshot(10, {"A"}) is None
    rows = {("A", "x"): b'{"a": 1}', ("A", "y"): b"\xff", ("B", "x"): b"2"}
    monkeypatch.setattr(journal, "snapshot", lambda upto: Snapshot(7, rows) if upto >= 7 else None)
    assert await bus.snapshot(6, {"A"}) is None
    assert await bus.snapshot(7, {"A", "C"}) == Snapshot(7, {key: row for key, row in rows.items() if key[0] == "A"})
