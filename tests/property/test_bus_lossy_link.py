"""Producer and broker over a link that breaks between any two messages. It breaks in either direction."""

from bus_rig import checked
from hypothesis import example, given, settings
from hypothesis import strategies as st
from memory_outbox import MemoryOutbox
from profiles import examples

from flyball.app.bus import wire
from flyball.app.bus.client import Client, Finished, Overdue, Settled
from flyball.app.bus.hub import Hub
from flyball.app.bus.ports import BrokerLimits
from flyball.app.events.frames import draft_of, hash_id, peek
from flyball.app.journal.memory import MemoryJournal


class World:
    """A program that publishes and subscribes, a broker, and messages between them."""

    def __init__(self):
        self.journal, self.outbox = MemoryJournal(), MemoryOutbox()
        self.hub = Hub(self.journal, "broker@test", BrokerLimits())
        self.life = self.connections = self.published = 0
        self.to_broker, self.to_client = [], []
        self.tokens, self.positions, self.lives, self.unmissed = {}, {}, [], False
        self.begin()
        self.broker_turn(1)
        self.client_turn(1)

    def begin(self):
        self.life += 1
        self.client = Client("p", self.life, outbox_frames=self.outbox.load())
        self.subscription = self.client.subscribe(None, 0)
        self.read = []
        self.connect()

    def connect(self):
        self.connections += 1
        self.to_broker, self.to_client = [], []
        self.client.connected()
        self.pump()

    def pump(self):
        self.to_broker += self.client.messages()
        for output in self.client.outputs():
            match output:
                case Finished(token, tuple(positions)):
                    self.positions[self.life, token] = positions
                case Settled(keys):
                    self.outbox.remove(keys)
                case Finished() | Overdue():
                    raise AssertionError(output)

    def publish(self, count):
        numbers = range(self.published, self.published + count)
        self.published += count
        self.lives += [self.life] * count
        token = self.client.publish([draft_of(checked(n)) for n in numbers], 0.0)
        self.tokens[self.life, token] = numbers
        self.pump()

    def consume(self, count):
        """Read the batches of the program, which gives back credit."""
        for _ in range(count):
            if (batch := self.client.next_batch(self.subscription)) is None:
                break
            self.read += [event.sequence for event in batch.events]
        self.pump()

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
        for parts in taken:
            self.client.receive(parts, 0.0)
        self.pump()

    def keep(self):
        self.outbox.put(self.client.unstored())
        self.client.mark_stored()

    def cut(self):
        """Break the connection, which loses the messages on it."""
        self.client.disconnected()
        self.keep()
        self.connect()

    def crash_broker(self):
        self.hub = Hub(self.journal, "broker@test", BrokerLimits())
        self.cut()

    def restart_client(self):
        """End the program and begin it again, with its outbox alone."""
        self.keep()
        self.begin()

    def lose(self, index):
        """Lose one frame. TCP never does this, and a gap must reveal it."""
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
        st.tuples(st.just("consume"), st.integers(1, 3)),
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


@settings(max_examples=examples(300))
@given(steps=steps)
@example(steps=ANOTHER_LIFE_FIRST)
def test_events_over_a_broken_link_are_recorded_once_in_order(steps):
    """Guarantee (ADR-004): events are recorded once and in order. Publishing is at least once."""
    world = World()
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
    world.cut()
    for _ in range(200):
        world.broker_turn(100)
        world.client_turn(100)
        world.consume(100)
    ids = [event for record in world.journal.read(0, limit=10**6).records for event in record.frame.ids]
    published = [hash_id(checked(n).id) for n in range(world.published)]
    assert sorted(ids) == sorted(published)
    life = dict(zip(published, world.lives, strict=True))
    ordered = sorted(ids, key=life.__getitem__) if world.unmissed else ids  # stable: the order within each life stays
    assert ordered == published
    assert not world.client.has_unacknowledged
    assert world.outbox.load() == []
    for token, numbers in world.tokens.items():
        if token in world.positions:  # events of an earlier life wait for no others
            assert world.positions[token] == tuple(ids.index(published[n]) + 1 for n in numbers)
        else:
            assert token[0] < world.life
    assert world.read == list(range(1, len(ids) + 1))
