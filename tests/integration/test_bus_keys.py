"""Mitigations of the bus's threat model, each against a real attempt (ADR-008)."""

import asyncio
import struct
import threading
from contextlib import asynccontextmanager, suppress
from itertools import count
from time import monotonic

import pytest
from bus_rig import START, RawClient, broker_thread, checked, gather, hello, until
from driving import promoted
from keyed_bus import KeyRing, client, keyed, keyed_broker
from structlog.testing import capture_logs

from flyball.app.bus import BrokerUnavailable, ZmqBus
from flyball.app.bus.access import ClientKeys, KeyRefused
from flyball.app.bus.ports import BrokerLimits, BusError, InsecureEndpoint, PublishRefused, Sign
from flyball.app.events import AccessRefused, DaemonReady, DaemonStopped, originate
from flyball.app.events.frames import DeadLetter, frame_of
from flyball.app.journal.memory import MemoryJournal

PROMOTION = originate(promoted("a" * 64), event_id="promote", time=START, subject="hex7_2p")


@pytest.fixture
def journal():
    return MemoryJournal()


@pytest.fixture
def ring(tmp_path):
    ring = KeyRing(tmp_path)
    for name, role in (("head", "head"), ("node1", "worker"), ("node2", "worker"), ("ann", "operator")):
        ring.admit(name, role)
    ring.admit("bob", "reader")
    return ring


@pytest.fixture
def broker(journal, ring):
    with keyed_broker(journal, ring, limits=BrokerLimits(max_sessions_per_key=2)) as broker:
        yield broker


@asynccontextmanager
async def connected(broker, ring, producer, **options):
    bus = client(broker, ring, producer, **options)
    try:
        yield bus
    finally:
        await bus.close()


async def refused(broker, ring, reason, *, count=1):
    """Return the journal's first report of refusals for a reason."""
    async with connected(broker, ring, "feedback@head") as bus, bus.subscribe({AccessRefused}, after=0) as found:
        async for batch in found:
            for event in batch.events:
                if event.data.reason == reason:
                    return event.data
    raise AssertionError


def raw_client(broker, ring, name):
    """Return a client with a key, which sends anything."""
    return RawClient(broker.endpoint, lambda socket: keyed(socket, ring.keys(name)))


async def test_a_stranger_s_key_is_refused_and_audited(broker, ring, journal):
    async with connected(broker, ring, "selfplay_worker@node1", keys=ring.stranger()) as bus:
        with pytest.raises(KeyRefused, match="does not admit the key"):
            await bus.publish(checked(0))
    found = await refused(broker, ring, "unknown_key")
    assert (found.key, found.address) == (None, "127.0.0.1")
    assert "public key" in found.detail


async def test_a_plain_client_gets_nothing_from_a_broker_with_keys(broker, journal):
    bus = ZmqBus(broker.endpoint, producer="selfplay_worker@node1", deadline_s=20)
    with pytest.raises(KeyRefused, match="uses keys, and the other does not"):
        await bus.publish(checked(0))
    await bus.close()
    assert journal.head == 0


async def test_a_client_refuses_a_broker_with_another_key(broker, ring, journal):
    """Pretend to be the head, without the head's secret key."""
    keys = ring.keys("node1")
    keys = type(keys)(keys.own, ring.keys("node2").own.public)
    bus = ZmqBus(broker.endpoint, producer="selfplay_worker@node1", keys=keys, deadline_s=0.5)
    with pytest.raises(BrokerUnavailable):
        await bus.publish(checked(0))
    await bus.close()
    assert journal.head == 0


async def test_a_revoked_key_loses_its_open_connection(broker, ring, journal):
    async with connected(broker, ring, "selfplay_worker@node1") as bus, bus.subscribe(after=0) as events:
        await bus.publish(checked(0))
        await gather(events, 1)
        ring.revoke("node1")
        with pytest.raises(KeyRefused, match="not authorized any more"):
            async for _ in events:
                pass
        with pytest.raises(KeyRefused):
            await bus.publish(checked(1))
    assert (await refused(broker, ring, "revoked")).key == "node1"
    assert "PARITY_CHECKED" not in [e.data.event_name for e in await events_after(broker, ring, 1)]


async def events_after(broker, ring, position):
    async with connected(broker, ring, "feedback@head") as bus, bus.subscribe(after=position) as events:
        async for batch in events:
            return batch.events
    return ()


async def test_a_refused_client_connects_once_its_key_is_authorized(broker, ring):
    """Make another connection, because ZeroMQ never retries a refused one."""
    stranger = ring.stranger()
    async with connected(broker, ring, "selfplay_worker@node9", keys=stranger) as bus:
        with pytest.raises(KeyRefused):
            await bus.publish(checked(0))
        ring.authorize("node9", "worker", stranger)
        assert await bus.publish(checked(1)) >= 1


async def test_a_patient_client_waits_for_its_key(broker, ring):
    stranger = ring.stranger()
    async with connected(broker, ring, "selfplay_worker@node9", keys=stranger, patient=True) as bus:
        waiting = asyncio.gather(bus.publish(checked(0)), gather(bus.subscribe(after=0), 1))
        with capture_logs() as logs:
            await until(lambda: logs)
        assert f"keys authorize node9 worker {stranger.own.public}" in logs[0]["reason"]
        assert not waiting.done()
        ring.authorize("node9", "worker", stranger)
        position, _ = await waiting
    assert position >= 1


async def test_revoked_patient_client_keeps_what_it_publishes(broker, ring, journal):
    async with connected(broker, ring, "selfplay_worker@node1", patient=True) as bus:
        await bus.publish(checked(0))
        ring.revoke("node1")
        await refused(broker, ring, "revoked")
        waiting = asyncio.gather(bus.publish(checked(1)))
        ring.authorize("node1", "worker", ring.keys("node1"))
        assert await waiting > [1]


async def test_a_worker_key_that_promotes_is_refused_and_audited(broker, ring, journal):
    async with connected(broker, ring, "model_lifecycle@node1") as bus:
        with pytest.raises(PublishRefused, match=r"worker key of node1 may not publish flyball\.model\.promoted"):
            await bus.publish(PROMOTION)
        assert await bus.publish(checked(0)) >= 1, "what a worker may publish still passes"
    found = await refused(broker, ring, "rights")
    assert (found.key, found.role) == ("node1", "worker")
    assert not list(journal.dead_letters()), "a flood of refusals does not fill the journal"


async def test_a_worker_key_that_speaks_for_another_node_is_refused(broker, ring, journal):
    """Publish another node's DAEMON_STOPPED, which would take its work away."""
    stopped = DaemonStopped(daemon="selfplay_worker", node="node2", position=1)
    async with connected(broker, ring, "selfplay_worker@node1") as bus:
        with pytest.raises(PublishRefused, match="selfplay_worker@node1 may not speak for selfplay_worker@node2"):
            await bus.publish(originate(stopped, event_id="stopped", time=START))
        own = originate(stopped.replace(node="node1"), event_id="own", time=START)
        assert await bus.publish(own) >= 1
    assert (await refused(broker, ring, "rights")).key == "node1"


async def test_a_reader_asks_who_is_present(broker, ring):
    ready = DaemonReady(daemon="selfplay_worker", node="node1", position=1, capacity=2)
    sign = Sign(position=1, lag=0, jobs=2, requests=3)
    async with connected(broker, ring, "selfplay_worker@node1") as bus:
        await bus.publish(originate(ready, event_id="ready", time=START))
        bus.show_life(sign)
        async with connected(broker, ring, "status@bob") as reader:
            while not (present := await reader.present()) or present[0].sign is None:
                await asyncio.sleep(0.01)
            reader.show_life(sign.replace(lag=9))
            assert [one.sign for one in await reader.present()] == [sign], "a reader's own sign counts for nothing"


async def test_a_reader_subscribes_and_changes_nothing(broker, ring):
    async with connected(broker, ring, "cli@head") as bus:
        await bus.publish(checked(0))
    async with connected(broker, ring, "cli@bob") as bus:
        async with bus.subscribe(after=0) as events:
            assert [event.id for event in await gather(events, 1)] == [checked(0).id]
        with pytest.raises(PublishRefused, match="reader key of bob"):
            await bus.publish(checked(1))
        with pytest.raises(BusError, match="reader key may not ask"):
            await bus.discard_dead_letter(1)
        with pytest.raises(BusError, match="reader key may not ask"):
            await bus.bury(DeadLetter(1, "p", "p", "why", b""))


async def test_a_hello_in_another_s_name_is_refused(broker, ring):
    async with connected(broker, ring, "selfplay_worker@node2", keys=ring.keys("node1")) as bus:
        with pytest.raises(KeyRefused, match="key of node1 may not speak as 'selfplay_worker@node2'"):
            await bus.publish(checked(0))
    assert (await refused(broker, ring, "producer")).key == "node1"


async def test_the_broker_s_own_key_speaks_for_two_heads(broker, ring):
    """Both heads have the broker's key, and nodes of their own (ADR-043). Another head's key has its name only."""
    own = ClientKeys(ring.head, ring.head.public)
    ring.authorize("one", "head", own)
    for number, node in enumerate(("one", "two"), 1):
        async with connected(broker, ring, f"feedback@{node}", keys=own) as bus:
            assert await bus.publish(checked(number)) >= 1
    async with connected(broker, ring, "feedback@two", keys=ring.keys("head")) as bus:
        with pytest.raises(KeyRefused, match="key of head may not speak as 'feedback@two'"):
            await bus.publish(checked(0))


def test_forged_or_replayed_frames_have_no_effect(broker, ring, journal):
    with raw_client(broker, ring, "node1") as raw:
        assert raw.say(b"H", hello("training@node1", [[1, 0]]))[0][:1] == b"W"
        forged = frame_of([checked(0)], producer="training@node2", epoch=1, base=0)
        assert raw.say(b"F", forged)[0][:1] == b"R"
        assert journal.head == 0
        frame = frame_of([checked(0)], producer="training@node1", epoch=1, base=1)
        first = raw.say(b"F", frame)
        assert first[0][:1] == b"A"
        assert raw.say(b"F", frame) == first
    with raw_client(broker, ring, "node2") as other:
        other.say(b"H", hello("training@node2", [[1, 0]]))
        assert other.say(b"F", frame)[0][:1] == b"R", "recorded frames cannot be replayed by another key"
    assert journal.head == 1
    with raw_client(broker, ring, "node2") as other:  # under the name of a connection that belonged to another key
        frame = frame_of([checked(0)], producer="training@node1", epoch=1, base=0)
        assert other.say(b"F", frame)[0] == struct.pack("<cI", b"G", 0)
    assert journal.head == 1


async def test_connections_with_one_key_are_limited(broker, ring):
    async with connected(broker, ring, "a@node1") as one, connected(broker, ring, "b@node1") as two:
        assert await one.publish(checked(0)) >= 1
        assert await two.publish(checked(1)) >= 1
        async with connected(broker, ring, "c@node1", deadline_s=0.5) as three, connected(broker, ring, "d@node2") as d:
            with pytest.raises(BrokerUnavailable):
                await three.publish(checked(2))
            assert await d.publish(checked(3)) >= 1, "another key is not concerned"
    assert (await refused(broker, ring, "connections")).key == "node1"


class HeldJournal(MemoryJournal):
    """A journal that appends only while it is ``free``; ``held`` once an append waits."""

    def __init__(self):
        super().__init__()
        self.free, self.held = threading.Event(), threading.Event()
        self.free.set()

    def append(self, *arguments, **options):
        if not self.free.is_set():
            self.held.set()
        assert self.free.wait(60)
        super().append(*arguments, **options)


async def test_connections_take_turns_while_messages_wait(ring):
    """Of ten messages that wait, at most two are recorded before another key's event."""
    size, journal, numbers = 500, HeldJournal(), count()
    with keyed_broker(journal, ring) as broker:
        async with connected(broker, ring, "flood@node1") as flood, connected(broker, ring, "calm@node2") as calm:
            await calm.publish(checked(next(numbers), who="calm"))
            for seconds in (0.1, 1, 5):  # nobody tells when messages have reached the broker's socket
                messages = [[checked(next(numbers), who="flood") for _ in range(size)] for _ in range(10)]
                journal.free.clear()
                journal.held.clear()
                async with asyncio.TaskGroup() as group:
                    first = group.create_task(flood.publish(checked(next(numbers), who="flood")))
                    await until(journal.held.is_set)
                    for events in messages:
                        group.create_task(flood.publish_many(events))
                    waiting = group.create_task(calm.publish(checked(next(numbers), who="calm")))
                    await asyncio.sleep(seconds)
                    journal.free.set()
                if (passed := waiting.result() - first.result()) <= 2 * size + 1:
                    break
    assert 1 <= passed <= 2 * size + 1


async def test_flood_from_one_key_slows_others_within_a_bound(journal, ring):
    """At most two seconds of a key's rate, its rate meanwhile, and one message come before another key's event."""
    size, rate, numbers = 500, 2000, count(step=500)
    with keyed_broker(journal, ring, limits=BrokerLimits(events_per_second=rate)) as broker:
        async with connected(broker, ring, "flood@node1") as flood, connected(broker, ring, "calm@node2") as calm:
            stop, poured = asyncio.Event(), asyncio.Event()

            async def pour():
                while not stop.is_set():
                    first = next(numbers)
                    with suppress(PublishRefused):
                        await flood.publish_many([checked(first + i, who="flood") for i in range(size)])
                        poured.set()

            passed = list[int]()
            allowed = list[float]()
            async with asyncio.TaskGroup() as group:
                for _ in range(10):
                    group.create_task(pour())
                await poured.wait()
                for number in range(40):
                    began, before = monotonic(), journal.head
                    passed.append(await calm.publish(checked(number, who="calm")) - before)
                    allowed.append(rate * (2 + monotonic() - began) + size + 1)
                stop.set()
            assert all(each <= most for each, most in zip(passed, allowed, strict=True)), (passed, allowed)


async def test_an_address_of_the_network_needs_keys(ring):
    with pytest.raises(InsecureEndpoint, match="without keys"):
        ZmqBus("tcp://10.1.2.3:5555", producer="training@node1")
    with keyed_broker(MemoryJournal(), ring) as broker:
        assert broker.endpoint.startswith("tcp://127.0.0.1:")
    with broker_thread(MemoryJournal(), "tcp://0.0.0.0:*", access=ring.access) as broker:
        assert broker.endpoint.startswith("tcp://0.0.0.0:")
