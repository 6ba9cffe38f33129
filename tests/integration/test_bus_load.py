"""Order, completeness and independence under load, across processes."""

import asyncio
import os
import random
import signal

from bus_rig import address, broker_process, broker_thread, checked, expect, gather, program

from flyball.app.bus import ZmqBus
from flyball.app.journal import SqliteJournalReader
from flyball.app.journal.memory import MemoryJournal


def test_four_publishers_at_once_are_recorded_once_in_order(tmp_path):
    """Guarantee (ADR-004): total order, which keeps the order of each producer."""
    count = 8_000
    with (
        broker_process(tmp_path),
        program("follow", tmp_path, 4 * count) as follower,
        program("publish", tmp_path, "a", count) as a,
        program("publish", tmp_path, "b", count) as b,
        program("publish", tmp_path, "c", count) as c,
        program("publish", tmp_path, "d", count) as d,
    ):
        for publisher in (a, b, c, d):
            expect(publisher, "done")
        expect(follower, "ready")
        expect(follower, "complete")
    reader = SqliteJournalReader(tmp_path / "journal.db")
    assert reader.head == 4 * count
    times, marks = [0], {}
    for record in reversed(list(reader.headers_back(reader.head))):
        times.append(record.recorded_us)
        assert record.frame.base >= marks.get(record.source, 0), "a producer's frames keep their order"
        marks[record.source] = record.frame.base + record.frame.count
    reader.close()
    assert times == sorted(times)
    assert sorted(marks) == ["a", "b", "c", "d"]


def test_subscriber_stopped_under_load_gets_events_once_in_order(tmp_path):
    """Guarantee (ADR-004): delivery at least once, in order, however slow the subscriber."""
    count = 10_000
    with (
        broker_process(tmp_path),
        program("follow", tmp_path, 2 * count) as follower,
        program("follow", tmp_path, 2 * count) as other,
    ):
        expect(follower, "ready")
        expect(other, "ready")
        with program("publish", tmp_path, "a", count) as first:
            os.kill(follower.pid, signal.SIGSTOP)
            expect(first, "done")
        with program("publish", tmp_path, "b", count) as second:
            expect(second, "done")
        expect(other, "complete")
        os.kill(follower.pid, signal.SIGCONT)
        expect(follower, "complete")


async def test_subscriber_that_does_not_read_delays_no_other(tmp_path):
    """Publish more than the credit of a subscriber that does not read."""
    journal = MemoryJournal()
    events = [checked(i) for i in range(30_000)]
    with broker_thread(journal, address(tmp_path)):
        bus, slow_bus = ZmqBus(address(tmp_path), producer="p"), ZmqBus(address(tmp_path), producer="slow")
        async with bus.subscribe(after=0) as quick, slow_bus.subscribe(after=0) as slow:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(gather(quick, len(events)))
                for start in range(0, len(events), 500):
                    await bus.publish_many(events[start : start + 500])
            assert len(reading.result()) == len(events)
            assert slow._state.held_bytes < 6 << 20, "credit bounds what waits for it"
            assert [e.sequence for e in await gather(slow, len(events))] == list(range(1, len(events) + 1))
        await bus.close()
        await slow_bus.close()


async def test_no_wake_up_is_missed(tmp_path):
    """Send and receive in several tasks on one socket, with varied pauses."""
    rng = random.Random(7)
    with broker_thread(MemoryJournal(), address(tmp_path)):
        bus, other = (ZmqBus(address(tmp_path), producer=name, deadline_s=10) for name in ("p", "q"))

        async def chatter(task, sender):
            for i in range(150):
                await sender.publish(checked(i, who=f"{task}"))
                if pause := rng.choice([None, 0, 0, 0.0005]):
                    await asyncio.sleep(pause)

        async with bus.subscribe(after=0) as one, other.subscribe(after=0) as two, asyncio.TaskGroup() as group:
            readers = [group.create_task(gather(subscription, 1800)) for subscription in (one, two)]
            for task in range(12):
                group.create_task(chatter(task, (bus, other)[task % 2]))
        for reader in readers:
            assert [e.sequence for e in reader.result()] == list(range(1, 1801))
        await bus.close()
        await other.close()
