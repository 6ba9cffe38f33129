"""Machines with a program: the shell around a ``Client`` as in ``flyball.app.bus.zmq_bus``, and its owner."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from bus_simulation.disk import SavedFold, SimulatedOutbox
from bus_simulation.network import Connection, Network, Sent
from bus_simulation.process import Process
from bus_simulation.witness import Witness, folded
from bus_simulation.workload import draft, started, stopped
from bus_simulation.world import Killed, Violation, World
from flyball.app.bus import wire
from flyball.app.bus.client import Changed, Client, ClientSubscription, Finished, Output, Overdue, Settled
from flyball.app.bus.ports import PublishRefused, Sign
from flyball.app.core import FlyballError
from flyball.app.events.frames import Draft, hash_id
from flyball.app.journal.database import StorageError
from flyball.daemons.host import FAREWELL_SECONDS

SIGN_S = 2.0
MOST_REPEATED = 5


@dataclass
class Habits:
    """How a program behaves.

    Attributes:
        pause_s: mean seconds between two publishes.
        follows: the types of each of its subscriptions; None for all.
        from_head: its subscriptions begin at the journal's end, not at its first event.
        read_s: most seconds that it takes to read a delivery.
        save_odds: how often it saves its state after a delivery.
        repeats: it publishes again, under the same ids, what it cannot know to be recorded.
        is_sole: it is a daemon: no other process may have its name, and it shows signs of life.
        deadline_s: see ``Client``.
    """

    pause_s: float
    follows: Sequence[frozenset[str] | None]
    from_head: bool
    read_s: float
    save_odds: float
    repeats: bool
    is_sole: bool
    deadline_s: float


class ProgramMachine:
    """A machine that starts a program whenever it does not run, and has the program's disk."""

    def __init__(
        self,
        world: World,
        network: Network,
        witness: Witness,
        name: str,
        habits: Habits,
        *,
        client: type[Client],
        outbox: SimulatedOutbox,
        addresses: Sequence[str],
    ) -> None:
        self.world, self.network, self.witness, self.name = world, network, witness, name
        self.habits, self.client, self.outbox, self.addresses = habits, client, outbox, addresses
        self.saved = [SavedFold() for _ in habits.follows]
        self.published = self.starts = 0
        self.unsettled: dict[int, Draft] = {}  # events not known to be recorded, by hashed id, in order
        self.process: ProgramProcess | None = None

    def start(self) -> None:
        """Start the program."""
        self.starts += 1
        self.process = ProgramProcess(self)
        self.process.begin()

    def ended(self) -> None:
        """Start the program again soon."""
        self.process = None
        self.world.after(self.world.between(0.05, 2.0), self.start)


@dataclass(eq=False)
class Follower:
    """A subscription and the state folded from it.

    Attributes:
        dead: positions of unreadable events that this process has reported.
    """

    types: frozenset[str] | None
    fold: SavedFold
    subscription: ClientSubscription
    is_reading: bool = False
    dead: list[int] = field(default_factory=list)


class ProgramProcess(Process):
    """One life of a program."""

    def __init__(self, machine: ProgramMachine) -> None:
        super().__init__(machine.world, machine.network, machine.name, "program")
        self._machine, self._habits, self._witness = machine, machine.habits, machine.witness
        self._outbox = machine.outbox
        self.client = machine.client(
            machine.name,
            self.world.rng.getrandbits(64),
            deadline_s=self._habits.deadline_s,
            outbox_frames=self._outbox.load(),
            sole=self._habits.is_sole,
            last_record=max((known for fold in machine.saved if (known := fold.known)), default=None),
        )
        self._connection: Connection | None = None
        self._connection_changes: deque[tuple[bool, Connection]] = deque()  # True for one that was made
        self._inbox: deque[list[bytes]] = deque()
        self._publishes: dict[int, list[int]] = {}  # hashed ids, by token
        self._questions: set[int] = set()
        self.followers: list[Follower] = []
        self._is_closing = False

    def begin(self) -> None:
        """Connect, subscribe, and publish again the events that may be lost."""
        for types, fold in zip(self._habits.follows, self._machine.saved, strict=True):
            after = 0 if fold.cursor is None and not self._habits.from_head else fold.cursor
            self.followers.append(Follower(types, replace(fold, cursor=after), self.client.subscribe(types, after)))
        if self._habits.is_sole:
            self._publish(started(self.name, self._machine.starts))
            self._show_life()
        if self._habits.repeats and self._machine.unsettled:
            self._publish(list(self._machine.unsettled.values())[:MOST_REPEATED])
        self._connect_later()
        self._publish_later()
        self.wake()

    def ended(self, why: str) -> None:
        self._machine.ended()

    # The network

    def _connect_later(self) -> None:
        self.world.after(self.world.between(0.02, 0.2), self._connect)

    def _connect(self) -> None:
        if self.has_ended:
            return
        address = self.world.rng.choice(self._machine.addresses)
        connection = None if self.is_halted else self.network.connect(self, address)
        if connection is None:
            self._connect_later()
            return
        self._connection = connection
        self._connection_changes.append((True, connection))
        self.wake(self.world.between(0.0, 0.01))

    def lost(self, connection: Connection) -> None:
        """Notice that a connection is lost."""
        if not self.has_ended:
            self._connection_changes.append((False, connection))
            self.wake()

    def arrive(self, connection: Connection, parts: list[bytes]) -> None:
        """Take a message from the network; those of the previous connection may still wait then."""
        if connection is self._connection and not self.has_ended:
            self._inbox.append(parts)
            self.wake(self.world.between(0.0, 0.001))

    # The shell, as ``ZmqBus._turn``

    def turn(self) -> Iterator[None]:
        """Exchange messages until there is nothing to send and nothing to receive."""
        yield
        if (due := self.client.next_deadline()) is not None and due <= self.world.now:
            self.client.tick(self.world.now)
        is_busy = True
        while is_busy:
            self._watch_connection()
            if not self.client.is_connected:
                self._store_frames()
            messages, received = self.client.messages(), len(self._inbox)
            for parts in messages:
                self._send(parts)
                yield
            for _ in range(received):
                self.client.receive(self._inbox.popleft(), self.world.now)
                yield
            for output in self.client.outputs():
                self._act(output)
                yield
            is_busy = bool(messages or received or self._connection_changes)
        if (due := self.client.next_deadline()) is not None:
            self.wake(max(0.0, due - self.world.now))

    def _watch_connection(self) -> None:
        while self._connection_changes:
            is_made, connection = self._connection_changes.popleft()
            if connection is not self._connection:
                continue
            self.world.note(self.name, "{} {}", "connects to" if is_made else "loses", connection.broker.name)
            if is_made:
                self.client.connected()
            else:
                self.client.disconnected()
                self._connection = None
                self._connect_later()

    def _send(self, parts: list[bytes]) -> None:
        if self._connection is not None:
            self.world.note(self.name, "to {}: {}", self._connection.broker.name, Sent(parts))
            self._connection.to_broker.send(parts)

    def _store_frames(self) -> None:
        if frames := self.client.unstored():
            try:
                self._outbox.put(frames)
            except StorageError as error:  # the publishers learn of it, and the frames stay in memory
                self.world.note(self.name, "cannot store {} frames: {}", len(frames), error)
            else:
                self.client.mark_stored()

    def _act(self, output: Output) -> None:  # noqa: C901 - one case for each kind
        match output:
            case Finished(token, result) if token in self._publishes:
                self._finish(self._publishes.pop(token), result)
            case Finished(_, PublishRefused()):
                pass  # a second frame of one publish
            case Finished(token, result):
                self._questions.discard(token)
                if isinstance(result, FlyballError):
                    raise Violation(f"{self.name} gets an error: {result}")
            case Overdue(token):
                self._questions.discard(token)
                self._store_frames()
            case Settled(keys):
                with suppress(StorageError):  # what stays is sent again at the next start
                    self._outbox.remove(keys)
            case Changed(subscription):
                if subscription.error is not None:
                    raise Violation(f"a subscription of {self.name} ended: {subscription.error}")
                self._read_later(next(each for each in self.followers if each.subscription is subscription))

    # Publishing

    def _publish_later(self) -> None:
        self.world.after(self.world.rng.expovariate(1 / self._habits.pause_s), self._publish_some)

    def _publish_some(self) -> None:
        if self.has_ended or self._is_closing or self.world.is_calm:
            return
        if not self.is_halted:
            size = self.world.rng.choice((1, 1, 2, 7))
            first = self._machine.published
            self._machine.published += size
            numbers = list(range(first, first + size))
            if self._habits.repeats and first and self.world.rng.random() < 0.2:
                numbers.insert(self.world.rng.randint(0, size), self.world.rng.randrange(first))
            drafts = [draft(self.name, number) for number in numbers]
            self._machine.unsettled.update((each.id_hash, each) for each in drafts)
            self._publish(drafts)
            if self.world.rng.random() < 0.1:
                self._questions.add(self.client.request(wire.PRESENT, wire.Message(), b"", self.world.now))
        self._publish_later()

    def _publish(self, drafts: list[Draft]) -> None:
        token = self.client.publish(drafts, self.world.now)
        self._publishes[token] = [each.id_hash for each in drafts]
        self.wake()

    def _finish(self, ids: list[int], result: object) -> None:
        for event in ids:
            self._machine.unsettled.pop(event, None)
        match result:
            case tuple(positions):
                self._witness.acknowledged(self.name, ids, positions)
            case PublishRefused():
                self._witness.refused(self.name, ids)
            case _:
                raise Violation(f"a publish of {self.name} fails: {result}")

    def _show_life(self) -> None:
        if not self.has_ended and not self._is_closing:
            if not self.is_halted:
                self.client.show_life(Sign(position=0, lag=0, jobs=0, requests=0))
                self.wake()
            self.world.after(SIGN_S, self._show_life)

    # Reading

    def _read_later(self, follower: Follower) -> None:
        if not follower.is_reading:
            follower.is_reading = True
            most = min(self._habits.read_s, 0.05) if self.world.is_calm else self._habits.read_s
            self.world.after(self.world.between(0.0, most), partial(self._read, follower))

    def _read(self, follower: Follower) -> None:
        if self.has_ended:
            return
        if self.is_halted:
            self.world.after(0.5, partial(self._read, follower))
            return
        follower.is_reading = False
        queue = follower.subscription.queue
        if not queue:
            return
        fold, start = follower.fold, queue[0].start
        if fold.cursor is None:
            fold = replace(fold, cursor=start, start=start)
        if fold.cursor != start:
            raise Violation(f"{self.name} has read up to {fold.cursor}, and its next delivery begins after {start}")
        batch = self.client.next_batch(follower.subscription)
        assert batch is not None
        self._witness.delivered(self.name, follower.types, start, batch)
        follower.dead += self._witness.unreadable(follower.types, start, batch.position)
        digest = fold.digest
        for event in batch.events:
            digest = folded(digest, hash_id(event.id))
        follower.fold = replace(fold, cursor=batch.position, checksum=batch.checksum, digest=digest)
        self._read_later(follower)
        self.wake()
        if self.world.rng.random() < self._habits.save_odds:
            self._save(follower)

    def _save(self, follower: Follower) -> None:
        dies = self.world.strikes("program killed while saving")
        if not dies or self.world.rng.random() < 0.5:
            self._machine.saved[self.followers.index(follower)] = follower.fold
        if dies:
            self.end("killed while saving")

    # The end

    def close(self) -> bool:
        """End in order: publish the last event, and leave a little later. Return False if it is halted or closing."""
        if self.is_halted or self._is_closing:
            return False
        self._is_closing = True
        if self._habits.is_sole:
            self._publish(stopped(self.name, self._machine.starts))
        self.world.after(self.world.between(0.0, FAREWELL_SECONDS), self._leave)
        return True

    def _leave(self) -> None:
        """Store unacknowledged frames in the outbox, and end."""
        if self.is_halted:
            self.world.after(0.5, self._leave)
        elif not self.has_ended:
            with suppress(Killed):
                self._store_frames()
            self.end("in order")

    def unfinished(self) -> str:
        """Return the reason why this program is not at rest; empty if it is."""
        client = self.client
        if self.is_halted or not client.is_welcome:
            return f"{self.name} is not connected"
        if client.has_unacknowledged or self._publishes:
            return f"{self.name} has unacknowledged events"
        if not all(map(self._witness.is_settled, self._outbox.load())):  # others are sent again at the next start
            return f"{self.name} has events in its outbox"
        if client._requests or self._questions:
            return f"{self.name} has unanswered requests"
        for follower in self.followers:
            cursor = follower.fold.cursor
            if cursor is None or self._witness.has_news(follower.types, cursor):
                return f"{self.name} has read up to {cursor} of {self._witness.head}"
        return ""
