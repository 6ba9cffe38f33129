"""Connections between programs and brokers: in order within one, in any order across them."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from bus_simulation.world import World
from flyball.app.bus import wire
from flyball.app.events.frames import Frame

if TYPE_CHECKING:
    from bus_simulation.broker import BrokerProcess
    from bus_simulation.program import ProgramProcess

HEARTBEAT_S = 10.0
"""Seconds after which ZeroMQ gives up a silent connection (HEARTBEAT_TIMEOUT)."""

KINDS = {value: name for name, value in vars(wire).items() if isinstance(value, bytes) and len(value) == 1}
"""Names of the kinds of messages."""


class Sent:
    """A message as the trace shows it."""

    def __init__(self, parts: list[bytes]) -> None:
        self._parts = parts

    def __str__(self) -> str:
        head = self._parts[0]
        match head[:1]:
            case wire.FRAME:
                frame = Frame.parse(self._parts[1])
                detail = f"{frame.count} events from {frame.base} of epoch {frame.epoch % 10_000}"
            case wire.ACK:
                epoch, runs = wire.read_ack(head)
                ranges = ", ".join(f"{run.size} from {run.base} at {run.first}" for run in runs)
                detail = f"{ranges} of epoch {epoch % 10_000}"
            case wire.EVENTS:
                _, number, start, end, newest, _ = wire.EVENTS_FORM.unpack(head)
                detail = f"after {start} up to {end} of {newest} for {number}"
            case wire.HELLO | wire.SUBSCRIBE:
                detail = self._parts[1].decode()
            case wire.CREDIT | wire.OPENED:
                detail = "{1}: {2}".format(*wire.OPENED_FORM.unpack(head))
            case _:
                detail = ""
        return f"{KINDS[head[:1]]} {detail}".rstrip()


class Pipe:
    """One direction of a connection. A cut keeps some of the messages under way, and loses all later ones.

    ``loses_frame`` loses the next frame alone. TCP never does that, but brokers must notice the gap.
    """

    def __init__(self, world: World, deliver: Callable[[list[bytes]], None]) -> None:
        self._world, self._deliver = world, deliver
        self._flying: deque[list[bytes]] = deque()
        self._last = 0.0
        self._is_cut = self.loses_frame = False

    def send(self, parts: list[bytes]) -> None:
        """Send a message. It arrives after those before it."""
        if self._is_cut:
            return
        if self.loses_frame and parts[0] == wire.FRAME:
            self.loses_frame = False
            return
        delay = self._world.between(0.0001, 0.003)
        if self._world.strikes("message slow"):
            delay = self._world.between(0.1, 3.0)
        self._last = max(self._last, self._world.now + delay)
        self._flying.append(parts)
        self._world.at(self._last, self._arrive)

    def cut(self) -> None:
        """Lose all later messages, and some of those under way."""
        self._is_cut = True
        for _ in range(self._world.rng.randint(0, len(self._flying))):
            self._flying.pop()

    def _arrive(self) -> None:
        if self._flying:
            self._deliver(self._flying.popleft())


class Connection:
    """A connection. Each side learns on its own, and later, that it is lost.

    Attributes:
        peer: the broker's name of it.
        is_lost: it is broken, whether the two sides know it or not.
        is_reachable: the broker does not know yet that it is lost.
    """

    def __init__(self, world: World, number: int, program: "ProgramProcess", broker: "BrokerProcess") -> None:
        self._world, self.program, self.broker = world, program, broker
        self.peer = b"peer %d" % number
        self.to_broker = Pipe(world, lambda parts: broker.arrive(self, parts))
        self.to_program = Pipe(world, lambda parts: program.arrive(self, parts))
        self.is_reachable, self.is_lost = True, False

    def lose(self, *, silently: bool = False) -> None:
        """Break the connection. Both sides notice soon, or, if it breaks silently, by missing heartbeats."""
        if self.is_lost:
            return
        self.is_lost = True
        self.to_broker.cut()
        self.to_program.cut()
        most = HEARTBEAT_S if silently else 0.05
        self._world.after(self._world.between(0.0, most), self._broker_notices)
        self._world.after(self._world.between(0.0, most), lambda: self.program.lost(self))

    def _broker_notices(self) -> None:
        self.is_reachable = False


class Network:
    """All connections, and the brokers that listen, by address."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.listening: dict[str, BrokerProcess] = {}
        self.connections: list[Connection] = []
        self._parted_until: dict[tuple[str, str], float] = {}  # by program and broker's address
        self._opened = 0

    def connect(self, program: "ProgramProcess", address: str) -> Connection | None:
        """Open a connection; None if nobody answers there."""
        broker = self.listening.get(address)
        is_parted = not self._world.is_calm and self._parted_until.get((program.name, address), 0.0) > self._world.now
        if broker is None or broker.is_halted or is_parted:
            return None
        self._opened += 1
        connection = Connection(self._world, self._opened, program, broker)
        self.connections.append(connection)
        return connection

    def part(self, connection: Connection, seconds: float) -> None:
        """Part the two sides of a connection for some time."""
        self._parted_until[connection.program.name, connection.broker.address] = self._world.now + seconds
        connection.lose(silently=True)

    def of(self, process: "BrokerProcess | ProgramProcess") -> list[Connection]:
        """Return the connections of a process."""
        return [each for each in self.connections if process in (each.program, each.broker)]

    def open_connections(self) -> list[Connection]:
        """Return the connections that are not lost."""
        self.connections = [each for each in self.connections if not each.is_lost]
        return self.connections
