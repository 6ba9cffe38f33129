"""A process that takes steps, and can be killed or halted between any two of them."""

from collections.abc import Iterator

from bus_simulation.network import HEARTBEAT_S, Network
from bus_simulation.world import Killed, World
from flyball.app.journal import Fenced
from flyball.app.journal.database import StorageError


class Process:
    """One life of a program or a broker.

    A turn yields wherever the process may be killed or halted (SIGSTOP). A halted one goes on at the same step.

    Args:
        world: its time, chance and faults.
        network: its connections.
        name: its name in the trace.
        kind: the first word of its faults.
    """

    def __init__(self, world: World, network: Network, name: str, kind: str) -> None:
        self.world, self.network, self.name = world, network, name
        self.has_ended = self.is_halted = False
        self._kill_fault, self._halt_fault = f"{kind} killed", f"{kind} halted"
        self._steps: Iterator[None] | None = None
        self._wake_at: float | None = None

    def turn(self) -> Iterator[None]:
        """Take the steps of one turn."""
        raise NotImplementedError

    def ended(self, why: str) -> None:
        """Note that the process has ended."""
        raise NotImplementedError

    def wake(self, seconds: float = 0.0) -> None:
        """Take a turn after some seconds, unless one is due earlier."""
        at = self.world.now + seconds
        if self._wake_at is None or at < self._wake_at:
            self._wake_at = at
            self.world.at(at, lambda: self._awake(at))

    def end(self, why: str) -> None:
        """End the process, and break its connections."""
        if self.has_ended:
            return
        self.has_ended = True
        self.world.note(self.name, "ended: {}", why)
        for connection in self.network.of(self):
            connection.lose(silently=not self.world.is_calm and self.world.rng.random() < 0.1)
        self.ended(why)

    def halt(self, seconds: float) -> None:
        """Halt the process. Others give up its connections once they miss heartbeats."""
        self.is_halted = True
        self.world.note(self.name, "halted for {:.1f} s", seconds)
        self.world.after(seconds, self._continue)
        if seconds > HEARTBEAT_S:
            self.world.after(HEARTBEAT_S, self._be_given_up)

    def _be_given_up(self) -> None:
        for connection in self.network.of(self):
            if self.is_halted and self.world.rng.random() < 0.9:
                connection.lose()

    def _continue(self) -> None:
        if not self.has_ended:
            self.is_halted = False
            self.world.note(self.name, "goes on")
            self._take_steps()

    def _awake(self, at: float) -> None:
        if at == self._wake_at:
            self._wake_at = None
            if not self.has_ended and not self.is_halted:
                self._take_steps()

    def _take_steps(self) -> None:
        self._steps = self._steps or self.turn()
        try:
            for _ in self._steps:
                if self.world.strikes(self._kill_fault):
                    self.end("killed between two steps")
                    return
                if self.world.strikes(self._halt_fault):
                    self.halt(self.world.between(0.5, 20.0))
                    return
        except (Killed, Fenced, StorageError) as error:
            self.end(f"{type(error).__name__}: {error}")
        self._steps = None
