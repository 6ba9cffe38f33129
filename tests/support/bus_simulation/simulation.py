"""One seed, from its first event until everything is at rest, and the checks at the end."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple
from unittest.mock import patch

from bus_simulation.broker import BrokerMachine
from bus_simulation.disk import OwnedJournal, SharedJournal, SimulatedOutbox
from bus_simulation.network import HEARTBEAT_S, Connection, Network
from bus_simulation.program import Habits, ProgramMachine
from bus_simulation.witness import Witness, check
from bus_simulation.world import RATES, TRACED_STEPS, Violation, World
from flyball.app.bus import client as client_module
from flyball.app.bus import fanout, outgoing, wire
from flyball.app.bus.client import Client
from flyball.app.bus.hub import Hub
from flyball.app.bus.ports import BrokerLimits
from flyball.app.core.clock import SECOND_US
from flyball.app.events import ParityChecked, QualityDegraded

MOST_DRAIN_S = 60.0
"""Most seconds from the last fault until everything is recorded and read: a halted process sleeps for up to 20."""

SILENT_S = 9.0
PROGRAMS = ("selfplay_worker@a", "training@b", "evaluation@c", "curves@d")
LIMITS = (
    (client_module, "CREDIT_BYTES", (2000, 20_000, 4 << 20)),
    (outgoing, "FRAMES_IN_FLIGHT", (1, 3, 16)),
    (outgoing, "FRAME_BYTES", (600, 4000, 256 << 10)),
    (fanout, "READ_RECORDS", (2, 1024)),
    (fanout, "SKIPPED_POSITIONS", (5, 1024)),
)
"""Constants that a seed sets, mostly to less than usual."""

FILTERS = (None, frozenset({ParityChecked.event_type}), frozenset({QualityDegraded.event_type}))


@dataclass(frozen=True)
class Parts:
    """The classes of a simulation; tests plant faults in them."""

    hub: type[Hub] = Hub
    client: type[Client] = Client
    journal: type[OwnedJournal] = OwnedJournal
    outbox: type[SimulatedOutbox] = SimulatedOutbox


class Outcome(NamedTuple):
    """Result of a seed: recorded events, takeovers, faults that struck, and seconds until all was quiet."""

    events: int
    takeovers: int
    struck: Counter[str]
    drained_s: float


class Failure(AssertionError):
    """A seed that breaks an invariant, with its latest steps."""

    def __init__(self, seed: int, error: Exception, trace: str) -> None:
        self.summary = f"Seed {seed}: {error if isinstance(error, Violation) else repr(error)}"
        again = f"All steps: python tests/support/bus_soak.py --seed {seed}"
        super().__init__(f"The latest steps:\n{trace}\n{self.summary}\n{again}")


class Simulation:
    """The machines of a seed.

    Args:
        seed: all choices follow from it.
        parts: the classes.
        traced: number of latest steps to keep; None keeps all.
    """

    def __init__(self, seed: int, parts: Parts | None = None, *, traced: int | None = TRACED_STEPS) -> None:
        self._seed, parts = seed, parts or Parts()
        self.world = world = World(seed, traced=traced)
        rng = world.rng
        nodes = rng.choice((("one",), ("one", "two"), ("one", "two")))
        self.witness = Witness()
        self._network = Network(world)
        self.shared = SharedJournal(world, self.witness)
        takeover_s = rng.choice((0.5, 2.0, 5.0)) if len(nodes) > 1 else 0.0
        limits = BrokerLimits(
            max_sessions=rng.choice((len(PROGRAMS), 8192)),
            retry_ms=200,
            events_per_second=rng.choice((20, 500_000, 500_000)),
            recent_bytes=rng.choice((0, 4000, 32 << 20)),
            delivery_bytes=rng.choice((1, 2000, 256 << 10)),
            laggards_per_round=rng.choice((1, 4)),
            silent_seconds=rng.choice((2.5, 2.5, SILENT_S)),
        )
        pause_s = rng.choice((0.2, 0.5, 2.0, 5.0))  # where little is published, superseded brokers learn of it late
        self._brokers = [
            BrokerMachine(
                world, self._network, self.shared, node,
                hub=parts.hub, journal=parts.journal, limits=limits, takeover_s=takeover_s,
            )
            for node in nodes
        ]  # fmt: skip
        self._programs = [
            ProgramMachine(
                world, self._network, self.witness, name, self._habits(pause_s),
                client=parts.client, outbox=parts.outbox(world, self.witness), addresses=nodes,
            )
            for name in PROGRAMS[: rng.randint(2, len(PROGRAMS))]
        ]  # fmt: skip
        self._faults: dict[str, Callable[[], bool]] = {
            "connection lost": self._lose_connection,
            "frame lost": self._lose_frame,
            "network parted": self._part_network,
            "asked to greet again": self._ask_for_greeting,
            "clock set": self._set_clock,
            "journal taken over": self._take_over,
            "program ended in order": self._end_program,
        }

    def run(self) -> Outcome:
        """Run until all is quiet after the last fault.

        Raises:
            Failure: an invariant does not hold.
        """
        with ExitStack() as patches:
            for module, name, values in LIMITS:
                patches.enter_context(patch.object(module, name, self.world.rng.choice(values)))
            try:
                return self._run()
            except Exception as error:
                raise Failure(self._seed, error, self.world.trace()) from error

    def _run(self) -> Outcome:
        world = self.world
        for machine in self._brokers:
            machine.watch()
        for program in self._programs:
            world.after(world.between(0.0, 2.0), program.start)
        for kind in RATES:
            self._fault_later(kind)
        world.run(world.between(3.0, 15.0))
        calm_at = world.now
        world.calm()
        world.note("all", "no more faults")
        while why := self._unfinished():
            check(world.now - calm_at < MOST_DRAIN_S, "not quiet {} s after the last fault: {}", MOST_DRAIN_S, why)
            world.run(world.now + 0.5)
        drained_s = world.now - calm_at
        self._check_end()
        world.run(world.now + HEARTBEAT_S + SILENT_S)  # of a connection that is lost, and not noticed
        self._check_presence()
        return Outcome(self.witness.head, self.shared.epoch, world.struck, drained_s)

    def _habits(self, pause_s: float) -> Habits:
        rng = self.world.rng
        return Habits(
            pause_s=pause_s,
            follows=[rng.choice(FILTERS) for _ in range(rng.choice((0, 1, 1, 2)))],
            from_head=rng.random() < 0.3,
            read_s=rng.choice((0.0, 0.0, 0.5, 3.0)),
            save_odds=rng.choice((0.1, 0.5, 1.0)),
            repeats=rng.random() < 0.5,
            is_sole=rng.random() < 0.7,
            deadline_s=rng.choice((0.5, 5.0, 30.0)),
        )

    def _unfinished(self) -> str:
        """Return the reason why not everything is at rest; empty if it is."""
        for machine in self._programs:
            if machine.process is None:
                return f"{machine.name} does not run"
            if why := machine.process.unfinished():
                return why
        return ""

    def _check_end(self) -> None:
        witness = self.witness
        witness.check_promises()
        dead_letters = {(dead.position, dead.reporter) for dead in self.shared.content.dead_letters()}
        for machine in self._programs:
            assert machine.process is not None
            for follower in machine.process.followers:
                fold = follower.fold
                assert fold.cursor is not None
                wanted = witness.digest(follower.types, fold.start, fold.cursor)
                check(fold.digest == wanted, "the state of {} is not that of {} events", machine.name, fold.cursor)
                for position in follower.dead:
                    check((position, machine.name) in dead_letters, "{} reported {} in vain", machine.name, position)

    def _check_presence(self) -> None:
        """Check that no program that shows life is lost, some time after the last fault."""
        for machine in self._programs:
            check(not self.witness.lost_daemons.get(machine.name), "{} lives, and counts as lost", machine.name)

    def _fault_later(self, kind: str) -> None:
        if rate := self.world.rates[kind]:
            self.world.after(self.world.rng.expovariate(rate), lambda: self._fault(kind))

    def _fault(self, kind: str) -> None:
        if not self.world.is_calm:
            if self._faults[kind]():
                self.world.struck[kind] += 1
                self.world.note("a fault", "{}", kind)
            self._fault_later(kind)

    # Faults. Each returns False if it has no effect.

    def _connection(self) -> Connection | None:
        """Return an open connection, if there is one."""
        connections = self._network.open_connections()
        return self.world.rng.choice(connections) if connections else None

    def _lose_connection(self) -> bool:
        if connection := self._connection():
            connection.lose(silently=self.world.rng.random() < 0.3)
        return connection is not None

    def _lose_frame(self) -> bool:
        """Lose a frame, and then the connection, because without a later frame nobody notices."""
        if connection := self._connection():
            connection.to_broker.loses_frame = self.witness.frames_were_lost = True
            self.world.after(self.world.between(0.5, 3.0), connection.lose)
        return connection is not None

    def _part_network(self) -> bool:
        if connection := self._connection():
            self._network.part(connection, self.world.between(0.5, 15.0))
        return connection is not None

    def _ask_for_greeting(self) -> bool:
        if connection := self._connection():
            parts = [wire.GREET_FORM.pack(wire.GREET, self.world.rng.choice((0, 0, 300))), b"a test"]
            connection.to_program.send(parts)
        return connection is not None

    def _set_clock(self) -> bool:
        machine = self.world.rng.choice(self._brokers)
        machine.clock_error_us = round(self.world.between(-7200.0, 7200.0) * SECOND_US)
        return True

    def _take_over(self) -> bool:
        return len(self._brokers) > 1 and self.world.rng.choice(self._brokers).take_over()

    def _end_program(self) -> bool:
        process = self.world.rng.choice(self._programs).process
        return process is not None and process.close()
