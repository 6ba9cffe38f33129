"""Refusals of the broker: each with a clear answer, harmless to others."""

import asyncio
import json
import struct
from contextlib import closing

import pytest
import zmq
from bus_rig import RawClient, StepClock, address, broker_thread, checked, gather, hello, until

from flyball.app.bus import ZmqBus, wire
from flyball.app.bus.broker import Broker
from flyball.app.bus.client import CREDIT_BYTES
from flyball.app.bus.ports import BrokerLimits, BusError, EventTooLarge, InsecureEndpoint
from flyball.app.events import RunConfigured, originate
from flyball.app.events.frames import DeadLetter, FrameBuilder, draft_of, frame_of
from flyball.app.journal import SqliteJournal
from flyball.app.journal.memory import MemoryJournal


class Stranger(RawClient):
    """A client that sends anything."""

    def hello(self, producer="stranger", epochs=((1, 0),)):
        answer = self.say(b"H", hello(producer, epochs))
        assert answer == [struct.pack("<cQ", b"W", 7)]


@pytest.fixture
def journal():
    return MemoryJournal()


@pytest.fixture
def broker(journal, tmp_path):
    limits = BrokerLimits(max_sessions=3, max_subscriptions=2, events_per_second=100)
    with broker_thread(journal, address(tmp_path), limits=limits) as broker:
        yield broker


@pytest.fixture
def stranger(broker):
    with Stranger(broker.endpoint) as stranger:
        yield stranger


def frame(*envelopes, producer="stranger", base=0):
    return frame_of(envelopes or [checked(base)], producer=producer, epoch=1, base=base)


def test_damaged_frames_are_dead_letters_and_later_frames_pass(stranger, journal):
    stranger.hello()
    damaged = bytearray(frame(base=0))
    damaged[-5] ^= 1
    kind, text = stranger.say(b"F", bytes(damaged))
    assert struct.unpack("<cQQI", kind) == (b"R", 1, 0, 1)
    assert b"checksum of its bodies" in text
    [dead] = journal.dead_letters()
    assert (dead.body, dead.producer, dead.position) == (bytes(damaged), "stranger", 0)
    assert stranger.say(b"F", frame(base=1)) == [struct.pack("<cQQIQ", b"A", 1, 1, 1, 1)]
    for junk in (b"", b"junk", b"FBF1", b"FBF1" + bytes(100)):
        kind, text = stranger.say(b"F", junk)
        assert kind[:1] == b"R"
        assert b"Damaged frame" in text
        assert journal.dead_letters()[-1].body == junk


@pytest.mark.parametrize(
    "parts",
    [
        (b"?",),
        (b"",),
        (b"F",),
        (b"S", b"{}"),
        (b"S", b"not JSON"),
        (b"C",),
        (b"U12",),
        (b"Q", b"commit"),
        (b"Q12345678", b"dance", b"{}", b""),
        (b"Q12345678", b"commit", b'{"name": "", "position": 1}', b""),
        (b"H", hello("x", protocol=1)),
        (b"I", b"{}"),
        (b"H",),
    ],
)
def test_nonsense_is_answered_with_an_error_and_harms_nobody(stranger, parts):
    stranger.hello()
    assert stranger.say(*parts)[0] == b"X"
    assert stranger.say(b"F", frame())[0][:1] == b"A"


async def test_settings_under_the_header_of_a_tick_reach_nobody(stranger, broker, journal):
    stranger.hello()
    configured = originate(RunConfigured(run_id="run", settings={}), event_id="configured", time=StepClock().now())
    builder = FrameBuilder("stranger")
    builder.add([draft_of(configured)._replace(type="flyball.clock.tick")])
    assert stranger.say(b"F", builder.build(1, 0))[0][:1] == b"A"
    bus = ZmqBus(broker.endpoint, producer="p")
    await bus.publish(checked(0))
    assert [event.sequence for event in await gather(bus.subscribe(after=0), 1)] == [2]
    await until(lambda: len(journal.dead_letters()) == 1)
    await bus.close()


def test_strangers_have_to_say_hello_in_their_own_name(stranger, journal):
    kind, text = stranger.say(b"F", frame())
    assert struct.unpack("<cI", kind) == (b"G", 0)
    assert b"does not know this connection" in text
    kind, text = stranger.say(b"H", hello("broker@localhost"))
    assert kind == b"X"
    assert b"is a broker's name" in text
    stranger.hello()
    assert b"from 'trainer'" in stranger.say(b"F", frame(producer="trainer"))[1]
    assert journal.head == 0


async def test_a_client_that_is_too_fast_slows_down_and_loses_nothing(journal, tmp_path):
    """Publish too fast, and say hello again after each refusal."""
    clock, limits = StepClock(), BrokerLimits(events_per_second=100)
    with broker_thread(journal, address(tmp_path), clock=clock, limits=limits) as broker:
        bus = ZmqBus(broker.endpoint, producer="quick")
        for i in range(0, 200, 100):
            await bus.publish_many([checked(k) for k in range(i, i + 100)])  # two seconds' worth
        for i in range(200, 500, 100):
            async with asyncio.TaskGroup() as group:
                surplus = group.create_task(bus.publish_many([checked(k) for k in range(i, i + 100)]))
                refused = bus._client._greeting + 3
                await until(lambda enough=refused: bus._client._greeting >= enough)
                assert (journal.head, surplus.done()) == (i, False)
                clock.seconds += 1
            assert surplus.result() == tuple(range(i + 1, i + 101))
        await bus.close()


async def test_a_second_connection_of_a_producer_brings_no_second_rate(journal, tmp_path):
    clock, limits = StepClock(), BrokerLimits(events_per_second=100)
    with broker_thread(journal, address(tmp_path), clock=clock, limits=limits) as broker:
        with Stranger(broker.endpoint) as first:
            first.hello()
            assert first.say(b"F", frame(*[checked(i) for i in range(300)]))[0][:1] == b"A"
        with Stranger(broker.endpoint) as second:
            second.hello(epochs=((1, 300),))
            assert second.say(b"F", frame(base=300))[0][:1] == b"G"


def test_one_connection_too_many_is_told_to_come_back(broker):
    with Stranger(broker.endpoint) as a, Stranger(broker.endpoint) as b, Stranger(broker.endpoint) as c:
        for stranger in (a, b, c):
            stranger.hello()
        with Stranger(broker.endpoint) as d:
            kind, text = d.say(b"H", hello("d"))
            assert struct.unpack("<cI", kind) == (b"G", 2000)
            assert b"serves 3 connections" in text


async def test_a_client_too_many_gets_its_turn_when_there_is_room(journal, tmp_path):
    clock = StepClock()
    limits = BrokerLimits(max_sessions=1, retry_ms=5)
    with broker_thread(journal, address(tmp_path), clock=clock, limits=limits) as broker:
        first = ZmqBus(broker.endpoint, producer="first")
        await first.publish(checked(0))
        second = ZmqBus(broker.endpoint, producer="second")
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(second.publish(checked(1)))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await first.close()
            while not waiting.done():
                clock.seconds += 10  # time to look for broken connections
                await asyncio.sleep(0.01)
        assert waiting.result() == 2
        await second.close()


async def test_subscription_or_event_too_many_or_too_large_is_refused(broker):
    bus = ZmqBus(broker.endpoint, producer="curious")
    async with bus.subscribe(), bus.subscribe():
        with pytest.raises(BusError, match="2 subscriptions already"):
            await anext(bus.subscribe())
    configured = RunConfigured(run_id="run", settings={"x": "x" * (1 << 20)})
    huge = originate(configured, event_id="huge", time=StepClock().now())
    with pytest.raises(EventTooLarge, match="Put the data into the store"):
        await bus.publish(huge)
    assert await bus.publish(checked(0)) == 1
    await bus.close()


async def test_a_message_over_the_bound_breaks_its_own_connection_only(journal, tmp_path):
    limits = BrokerLimits(max_message_bytes=1 << 16)
    with broker_thread(journal, address(tmp_path), limits=limits) as broker:
        bus = ZmqBus(broker.endpoint, producer="p")
        await bus.publish(checked(0))
        with Stranger(broker.endpoint) as stranger:
            stranger.socket.send_multipart([b"F", bytes(1 << 20)])
            assert await bus.publish(checked(1)) == 2
            stranger.socket.setsockopt(zmq.RCVTIMEO, 50)
            with pytest.raises(zmq.Again):
                stranger.socket.recv_multipart()
        await bus.close()


async def test_broker_dead_letters_of_impossible_numbers_are_refused(tmp_path):
    """Numbers beyond SQLite's range must not stop the broker."""
    with (
        closing(SqliteJournal(tmp_path / "journal.sqlite")) as journal,
        broker_thread(journal, address(tmp_path)) as broker,
    ):
        bus = ZmqBus(broker.endpoint, producer="p")
        await bus.publish(checked(0))
        for position in (2, 1 << 63):
            with pytest.raises(BusError, match=f"{position} lies beyond the journal's end 1"):
                await bus.bury(DeadLetter(position, "p", "p", "why", b""))
        await bus.close()
        with Stranger(broker.endpoint) as stranger:
            stranger.hello()
            answer = stranger.say(struct.pack("<cQ", wire.ASK, 1), b"forget", json.dumps({"number": 1 << 63}).encode())
            assert answer[0] == wire.ERROR
            stranger.hello()
    SqliteJournal(tmp_path / "journal.sqlite").close()


@pytest.mark.parametrize("endpoint", ["tcp://0.0.0.0:5555", "tcp://*:5555", "tcp://10.0.0.1:5555", "tcp://[::]:5555"])
def test_an_address_that_others_can_reach_is_refused(endpoint):
    with pytest.raises(InsecureEndpoint, match="other machines could connect"):
        Broker(MemoryJournal(), endpoint, StepClock())


def test_an_address_in_use_is_named():
    taken = pytest.raises(BusError, match="Another broker listens there")
    with broker_thread(MemoryJournal(), "tcp://127.0.0.1:*") as tcp, taken:
        Broker(MemoryJournal(), tcp.endpoint, StepClock())


async def test_the_broker_publishes_its_own_events_on_each_tick(journal, tmp_path):
    clock, asked = StepClock(), []

    def on_tick(now):
        asked.append(now)
        return [checked(len(asked), who="clock")]

    with broker_thread(journal, address(tmp_path), clock=clock, on_tick=on_tick, tick_s=10, node="here") as broker:
        bus = ZmqBus(broker.endpoint, producer="p")
        async with bus.subscribe(after=0) as subscription:
            for seconds in (0, 10, 20):
                clock.seconds = seconds
                [event] = await gather(subscription, 1)
                assert (event.source, event.recordedtime) == ("broker@here", clock.now())
        await bus.close()
    assert len(asked) == 3


def test_the_watchdog_is_called_while_nothing_happens(journal, tmp_path):
    import threading

    called = threading.Semaphore(0)
    with broker_thread(journal, address(tmp_path), on_loop=called.release):
        for _ in range(3):
            assert called.acquire(timeout=20)


async def test_damaged_record_fails_its_subscriber_and_no_other(tmp_path):
    """Guarantee (ADR-004): damage is refused loudly."""
    journal = SqliteJournal(tmp_path / "journal.db")
    with broker_thread(journal, address(tmp_path)) as broker:
        bus = ZmqBus(broker.endpoint, producer="p")
        for i in range(3):
            await bus.publish(checked(i))
        await bus.close()
    journal._db.connection.execute("UPDATE frames SET bodies = x'00' WHERE first = 2")
    with broker_thread(journal, address(tmp_path)) as broker:
        bus = ZmqBus(broker.endpoint, producer="q")
        with pytest.raises(BusError, match=r"Damaged journal.*position 2"):
            await gather(bus.subscribe(after=0), 3)
        assert await bus.publish(checked(3)) == 4
        assert [event.sequence for event in await gather(bus.subscribe(after=2), 2)] == [3, 4]
        await bus.close()
    journal.close()


async def test_subscribing_again_without_reading_gets_no_more_credit(tmp_path):
    journal = MemoryJournal()
    with broker_thread(journal, address(tmp_path)) as broker:
        bus = ZmqBus(broker.endpoint, producer="p")
        for i in range(60):
            await bus.publish_many([checked(k) for k in range(400 * i, 400 * i + 400)])
        subscription = bus.subscribe(after=0)
        for _ in range(4):
            async with asyncio.timeout(200):
                await settled(subscription)
            bus._client.connected()  # as after every interruption
            bus.wake()
        assert subscription._state.held_bytes < CREDIT_BYTES + (1 << 20)
        events = await gather(subscription, 24_000)
        assert [event.sequence for event in events] == list(range(1, 24_001))
        await bus.close()


async def settled(subscription):
    """Wait until the broker has nothing more to send.

    Its answers to other requests serve as barriers behind the events that it has sent.
    """
    count = -1
    while count != subscription._state.held_bytes:
        count = subscription._state.held_bytes
        for _ in range(3):
            await subscription._bus.discard_dead_letter(1)
