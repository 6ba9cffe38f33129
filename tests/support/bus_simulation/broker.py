"""Machines with a broker: the shell around a ``Hub`` as in ``flyball.app.bus.broker``, and takeovers."""

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count
from typing import Any

from bus_simulation.disk import OwnedJournal, SharedJournal
from bus_simulation.network import Connection, Network, Sent
from bus_simulation.process import Process
from bus_simulation.world import World
from flyball.app.bus.broker import LONGEST_TURN_S, MAX_WAIT_S, PROBE_S
from flyball.app.bus.hub import Hub
from flyball.app.bus.ports import BrokerLimits
from flyball.app.core import derive_id
from flyball.app.core.clock import SECOND_US
from flyball.app.events import ClockTick, Envelope, Payload, originate
from flyball.app.events.envelope import EPOCH

START_US = 1_700_000_000 * SECOND_US
WATCH_S = 0.5
"""Seconds between two looks of a standby at the broker that serves."""


class BrokerMachine:
    """A machine whose supervisor starts a broker whenever none runs. The broker stands by while another serves.

    Args:
        world: its time, chance and faults.
        network: where it listens.
        shared: the journal.
        node: the machine's name, and its address.
        hub: class of its hubs.
        journal: class of its journals.
        takeover_s: seconds of silence after which a standby takes over; 0 if there is no other broker.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        shared: SharedJournal,
        node: str,
        *,
        hub: type[Hub],
        journal: type[OwnedJournal],
        limits: BrokerLimits,
        takeover_s: float,
    ) -> None:
        self._world, self._network, self._shared, self._hub, self._journal = world, network, shared, hub, journal
        self.node, self._limits, self._takeover_s = node, limits, takeover_s
        self.clock_error_us = 0
        self.process: BrokerProcess | None = None
        self._starts = 0

    def watch(self) -> None:
        """Take the journal over if no other broker has shown life for a while; otherwise look again later."""
        if self.process is not None:
            return
        if self._world.now - self._shared.renewed >= self._takeover_s:
            self.take_over()
        else:
            self._world.after(self._world.between(0.5, 1.0) * WATCH_S, self.watch)

    def take_over(self) -> bool:
        """Begin to serve; return False if a broker runs here already."""
        if self.process is not None:
            return False
        self._starts += 1
        journal = self._journal(self._shared)
        self._world.note(self.node, "takes over at {} in epoch {}", journal.head, self._shared.epoch)
        hub = self._hub(journal, f"broker@{self.node}", self._limits)
        self.process = BrokerProcess(self, self._world, self._network, hub, journal, f"{self.node} {self._starts}")
        self.process.wake()
        return True

    def now_us(self) -> int:
        """Return the machine's time of day, in microseconds since 1970 UTC."""
        return START_US + round(self._world.now * SECOND_US) + self.clock_error_us

    def ended(self) -> None:
        """Start the next broker soon."""
        self.process = None
        self._world.after(self._world.between(0.05, 2.0), self.watch)


class BrokerProcess(Process):
    """One life of a broker. ``drained`` bounds the messages that it takes in one turn."""

    def __init__(
        self, machine: BrokerMachine, world: World, network: Network, hub: Hub, journal: OwnedJournal, name: str
    ) -> None:
        super().__init__(world, network, name, "broker")
        self._machine, self.hub, self._journal, self.address = machine, hub, journal, machine.node
        self._inboxes: dict[Connection, deque[list[bytes]]] = {}
        self._connections: dict[bytes, Connection] = {}
        self._drained = world.rng.choice((1, 3, 20, 512))
        self._tick_s, self._next_tick = world.rng.choice((1.0, 3.0, 10.0)), world.now
        self._turned, self._listened, self._next_probe = world.now, 0.0, 0.0
        self._facts = count()
        network.listening[self.address] = self

    def arrive(self, connection: Connection, parts: list[bytes]) -> None:
        """Take a message from the network."""
        if not self.has_ended:
            self._connections[connection.peer] = connection
            self._inboxes.setdefault(connection, deque()).append(parts)
            self.wake(5.0 if self.world.strikes("broker slow") else self.world.between(0.0, 0.002))

    def ended(self, why: str) -> None:
        del self.network.listening[self.address]
        self._machine.ended()

    def turn(self) -> Iterator[None]:
        """See ``Broker._turn``."""
        now, now_us = self.world.now, self._machine.now_us()
        self._listened += min(now - self._turned, LONGEST_TURN_S)
        self._turned = now
        taken = 0
        while taken < self._drained and self._inboxes:
            self._receive(now_us)
            taken += 1
            yield
        if now >= self._next_tick:
            self._next_tick = max(self._next_tick + self._tick_s, now)
            self.hub.originate(self._envelopes([ClockTick(period_seconds=1.0)], now_us), now_us)
        self.hub.settle()
        yield
        facts = [] if self._inboxes else self.hub.presence_facts(self._listened)
        if facts:
            self.hub.originate(self._envelopes(facts, now_us), now_us)
            self.hub.settle()
            yield
        for peer, parts in self.hub.messages():
            self._send(peer, parts)
            yield
        if self._listened >= self._next_probe:
            self._next_probe = self._listened + PROBE_S
            for peer, parts in self.hub.probe(self._listened):
                self._send(peer, parts)
        self._journal.maintain()
        yield
        self.wake(0.0 if self._inboxes or self.hub.has_more() else MAX_WAIT_S)

    def _receive(self, now_us: int) -> None:
        """Receive the next message of any connection."""
        connection = self.world.rng.choice(list(self._inboxes))
        inbox = self._inboxes[connection]
        self.hub.receive(connection.peer, inbox.popleft(), self._listened, now_us)
        if not inbox:
            del self._inboxes[connection]

    def _send(self, peer: bytes, parts: list[bytes]) -> None:
        connection = self._connections[peer]
        if connection.is_reachable:
            self.world.note(self.name, "to {}: {}", connection.program.name, Sent(parts))
            connection.to_program.send(parts)
        else:
            self.hub.forget(peer)

    def _envelopes(self, facts: Sequence[Payload], now_us: int) -> list[Envelope[Any]]:
        time = EPOCH + timedelta(microseconds=now_us)
        return [originate(fact, event_id=derive_id(self.name, next(self._facts)), time=time) for fact in facts]
