"""Producer and broker over a link that is cut at any moment, between any two messages, in either direction."""

import asyncio

from bus_rig import checked
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.bus import BrokerLimits, wire
from app.bus.hub import Hub
from app.bus.outgoing import Outgoing, Ticket
from app.events.frames import draft_of, hash_id, peek
from app.journal import MemoryJournal, MemoryOutbox

PEER = b"peer"


class World:
    """One producer, one broker, and what is on its way between them."""

    def __init__(self, loop):
        self.loop = loop
        self.journal, self.outbox = MemoryJournal(), MemoryOutbox()
        self.hub = Hub(self.journal, "broker@test", BrokerLimits())
        self.life = self.connections = self.published = 0
        self.to_broker, self.to_client = [], []
        self.tickets, self.lives, self.unmissed = {}, [], False
        self.begin()
        self.broker_turn(1)
        self.client_turn(1)

    def begin(self):
        self.life += 1
        self.outgoing = Outgoing("p", self.life, self.outbox)
        self.connect()

    def connect(self):
        self.connections += 1
        self.to_broker, self.to_client, self.welcomed = [], [], False
        self.greet()

    def greet(self):
        self.welcomed = False
        hello = wire.Hello(greeting=1, producer="p", epochs=self.outgoing.epochs())
        self.to_broker.append([wire.HELLO, hello.model_dump_json().encode()])

    def publish(self, count):
        ticket = Ticket(self.loop.create_future(), count)
        numbers = range(self.published, self.published + count)
        self.published += count
        self.lives += [self.life] * count
        self.outgoing.add([draft_of(checked(n)) for n in numbers], ticket, 0.0)
        self.tickets[numbers] = ticket
        self.pump()

    def pump(self):
        if self.welcomed:
            self.to_broker += [[wire.FRAME, raw] for raw in self.outgoing.due()]

    def broker_turn(self, count):
        taken, self.to_broker = self.to_broker[:count], self.to_broker[count:]
        for parts in taken:
            self.hub.receive(b"%d" % self.connections, parts, 0.0, 0)
        self.hub.settle()
        for peer, parts in self.hub.messages():
            if peer == b"%d" % self.connections:
                self.to_client.append(parts)

    def client_turn(self, count):
        taken, self.to_client = self.to_client[:count], self.to_client[count:]
        for head, *_ in taken:
            if head[:1] == wire.WELCOME:
                self.welcomed = True
                self.outgoing.restart()
            elif head[:1] == wire.ACK:
                self.outgoing.acknowledged(*wire.read_ack(head))
            elif head[:1] == wire.GREET and self.welcomed:
                self.greet()
        self.pump()

    def cut(self):
        """The connection breaks: what is under way is lost."""
        self.outgoing.keep()
        self.connect()

    def crash_broker(self):
        self.hub = Hub(self.journal, "broker@test", BrokerLimits())
        self.cut()

    def restart_client(self):
        """The program ends and begins again; the outbox is all it has."""
        self.outgoing.keep()
        self.begin()

    def lose(self, index):
        """One frame vanishes: what TCP never does, and a gap must reveal."""
        frames = [i for i, parts in enumerate(self.to_broker) if parts[0] == wire.FRAME]
        if frames:
            lost = frames[index % len(frames)]
            self.unmissed |= peek(self.to_broker[lost][1])[0] < self.life
            del self.to_broker[lost]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 4)),
        st.tuples(st.just("broker_turn"), st.integers(1, 6)),
        st.tuples(st.just("client_turn"), st.integers(1, 6)),
        st.tuples(st.just("lose"), st.integers(0, 3)),
        st.sampled_from([("cut",), ("crash_broker",), ("restart_client",)]),
    ),
    max_size=60,
)


ANOTHER_LIFE_FIRST = [
    ("publish", 1),
    ("restart_client",),
    ("publish", 1),
    ("broker_turn", 1),
    ("client_turn", 1),
    ("lose", 0),
    ("broker_turn", 1),
]


@settings(max_examples=300)
@given(steps=steps)
@example(steps=ANOTHER_LIFE_FIRST)
def test_every_event_is_recorded_once_and_in_order_whatever_breaks(steps):
    """Guarantee (ADR-003): publishing at least once, recorded once.

    A frame that vanishes is missed by the next one of the same life. One of an earlier life may have none, and a later
    life's events may be recorded before it.
    """
    loop = asyncio.new_event_loop()
    try:
        world = World(loop)
        for name, *arguments in steps:
            getattr(world, name)(*arguments)
        world.cut()
        for _ in range(200):
            world.broker_turn(100)
            world.client_turn(100)
    finally:
        loop.close()
    ids = [event for record in world.journal.read(0, limit=10**6).records for event in record.frame.ids]
    published = [hash_id(checked(n).id) for n in range(world.published)]
    assert sorted(ids) == sorted(published)
    life = dict(zip(published, world.lives, strict=True))
    ordered = sorted(ids, key=life.__getitem__) if world.unmissed else ids  # stable: the order within each life stays
    assert ordered == published
    assert not world.outgoing
    assert world.outbox.load() == []
    for numbers, ticket in world.tickets.items():
        if ticket.future.done():  # those of an earlier life wait for nobody
            assert ticket.future.result() == tuple(ids.index(published[n]) + 1 for n in numbers)
