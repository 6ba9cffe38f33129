"""Acknowledged events survive; clients outlast the broker."""

import asyncio
import os
import signal

import pytest
from bus_rig import address, broker_process, broker_thread, checked, gather, until
from memory_outbox import MemoryOutbox

from flyball.app.bus import BrokerUnavailable, ZmqBus
from flyball.app.bus.broker import Broker
from flyball.app.events.frames import Frame
from flyball.app.journal import SqliteJournal, SqliteJournalReader
from flyball.app.journal.database import StorageFull
from flyball.app.journal.memory import MemoryJournal
from flyball.daemons.clock import SystemClock


def recorded(folder):
    reader = SqliteJournalReader(folder / "journal.db")
    records, position = [], 0
    while (chunk := reader.read(position)).records:
        records += chunk.records
        position = chunk.position
    reader.close()
    return records


def frame_count(raw):
    return Frame.parse(raw).count


def bodies(folder):
    return {record.first + i: body for record in recorded(folder) for i, body in enumerate(record.frame.bodies())}


async def test_acknowledged_events_survive_kill_9_of_the_broker(tmp_path):
    """Guarantee (ADR-004): what is acknowledged survives kill -9."""
    acknowledged = {}
    bus = ZmqBus(address(tmp_path), producer="witness", deadline_s=60)

    async def publish(who):
        for i in range(0, 400, 4):
            events = [checked(k, who=who) for k in range(i, i + 4)]
            positions = await bus.publish_many(events)
            acknowledged.update({position: event.id for position, event in zip(positions, events, strict=True)})

    async def kill_and_start_again():
        for milestone in (50, 400, 900, 1400):
            with broker_process(tmp_path) as broker:
                await until(lambda enough=milestone: len(acknowledged) >= enough)
                os.kill(broker.pid, signal.SIGKILL)
                broker.wait()
            stored = await asyncio.to_thread(bodies, tmp_path)
            assert all(event_id.encode() in stored[position] for position, event_id in list(acknowledged.items()))
        with broker_process(tmp_path):
            await until(lambda: len(acknowledged) >= 1600)

    async with asyncio.TaskGroup() as group:
        group.create_task(kill_and_start_again())
        for who in ("a", "b", "c", "d"):
            group.create_task(publish(who))
    await bus.close()
    assert sorted(acknowledged) == list(range(1, 1601)), "each event was recorded once"


async def test_clients_reconnect_by_themselves_and_miss_nothing(tmp_path):
    bus = ZmqBus(address(tmp_path), producer="steady", deadline_s=60)
    subscription = bus.subscribe(after=0)
    for round_ in range(3):
        with broker_process(tmp_path) as broker:
            for i in range(20):
                assert await bus.publish(checked(20 * round_ + i)) == 20 * round_ + i + 1
            events = await gather(subscription, 20)
            assert [e.sequence for e in events] == list(range(20 * round_ + 1, 20 * round_ + 21))
            broker.terminate()
            assert broker.wait() == 0, "a broker that is told to stop does so cleanly"
    await bus.close()


async def test_publish_without_an_answer_says_where_the_event_is(tmp_path):
    bus = ZmqBus(address(tmp_path), producer="lonely", deadline_s=0.05)
    with pytest.raises(BrokerUnavailable, match="in memory only") as caught:
        await bus.publish(checked(0))
    assert caught.value.queued is False
    await bus.close()
    bus = ZmqBus(address(tmp_path), producer="lonely", deadline_s=0.05, outbox=MemoryOutbox())
    with pytest.raises(BrokerUnavailable, match="kept in the outbox") as caught:
        await bus.publish(checked(0))
    assert caught.value.queued is True
    await bus.close()


async def test_a_request_that_gets_no_answer_says_so(tmp_path):
    bus = ZmqBus(address(tmp_path), producer="lonely", deadline_s=0.05)
    with pytest.raises(BrokerUnavailable):
        await bus.discard_dead_letter(1)
    subscription = bus.subscribe()
    with pytest.raises(BrokerUnavailable):
        async with subscription:
            pass
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)
    await bus.close()


async def test_waiting_publishes_succeed_when_the_broker_comes_in_time(tmp_path):
    outbox = MemoryOutbox()
    bus = ZmqBus(address(tmp_path), producer="early", outbox=outbox)
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(bus.publish(checked(i))) for i in range(10)]
        await until(outbox.load)
        with broker_thread(MemoryJournal(), address(tmp_path)):
            await asyncio.wait(waiting)
    assert [task.result() for task in waiting] == list(range(1, 11))
    assert outbox.load() == []
    await bus.close()


async def test_a_full_outbox_is_said_to_the_publisher(tmp_path):
    bus = ZmqBus(address(tmp_path), producer="chatty", outbox=MemoryOutbox(max_bytes=2000))
    with pytest.raises(Exception, match="The outbox would hold"):
        await bus.publish_many([checked(i) for i in range(50)])
    await bus.close()


class UndeletableOutbox(MemoryOutbox):
    """An outbox on a full disk, where deleting needs room, too."""

    def remove(self, keys):
        raise StorageFull("No room.")


async def test_outbox_that_cannot_delete_does_not_stop_the_bus(tmp_path):
    """Events that stay in it are sent again at the next start, and recorded once."""
    broken, journal, outbox = [], MemoryJournal(), UndeletableOutbox()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
    bus = ZmqBus(address(tmp_path), producer="p", outbox=outbox)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(bus.publish(checked(0)))
        await until(outbox.load)
        with broker_thread(journal, address(tmp_path)):
            assert await waiting == 1
            assert await bus.publish(checked(1)) == 2
            await bus.close()
            bus = ZmqBus(address(tmp_path), producer="p", outbox=outbox)
            assert await bus.publish(checked(2)) == 3
            await bus.close()
    assert broken == []
    assert journal.head == 3


async def test_full_disk_stops_the_broker_and_loses_no_event(tmp_path):
    """Keep acknowledged events in the journal, and waiting events in the outbox."""
    journal, outbox = SqliteJournal(tmp_path / "journal.db"), MemoryOutbox()
    pages = journal._db.connection.execute("PRAGMA page_count").fetchone()[0]
    journal._db.connection.execute(f"PRAGMA max_page_count = {pages + 8}")
    broker = Broker(journal, address(tmp_path), SystemClock())
    serving = asyncio.get_running_loop().run_in_executor(None, broker.run, lambda: False)
    bus = ZmqBus(address(tmp_path), producer="p", deadline_s=0.2, outbox=outbox)
    acknowledged = 0

    async def publish_until_it_fails():
        nonlocal acknowledged
        while True:
            acknowledged += len(await bus.publish_many([checked(acknowledged + i) for i in range(50)]))

    with pytest.raises(BrokerUnavailable) as caught:
        await publish_until_it_fails()
    assert caught.value.queued
    with pytest.raises(StorageFull, match="Free some disk space"):
        await serving
    await bus.close()
    journal.close()
    assert acknowledged == max(bodies(tmp_path), default=0)
    assert [frame_count(raw) for raw in outbox.load()] == [50]


async def test_closing_waits_for_what_is_under_way(tmp_path):
    journal = MemoryJournal()
    with broker_thread(journal, address(tmp_path)):
        bus = ZmqBus(address(tmp_path), producer="hasty")
        await bus.publish(checked(0))
        async with asyncio.TaskGroup() as group:
            last = group.create_task(bus.publish(checked(1)))
            await asyncio.sleep(0)
            await bus.close()
        assert last.result() == 2


async def test_client_follows_the_journal_to_the_other_head(tmp_path):
    """Each head serves in turn; events arrive in one order, each once."""
    heads = [f"ipc://{tmp_path / name}" for name in ("a.sock", "b.sock")]
    journal = MemoryJournal()
    writer = ZmqBus(heads[0], producer="writer", deadline_s=60, other=heads[1])
    reader = ZmqBus(heads[1], producer="reader", deadline_s=60, other=heads[0])
    positions, events, subscription = [], [], reader.subscribe(after=0)
    async with asyncio.timeout(60):
        for turn, head in enumerate((heads[1], heads[0], heads[1])):
            with broker_thread(journal, head):
                positions += [await writer.publish(checked(number)) for number in range(5 * turn, 5 * turn + 5)]
                events += await gather(subscription, 5)
    assert positions == [event.sequence for event in events] == list(range(1, 16))
    await writer.close()
    await reader.close()
