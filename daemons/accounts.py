"""Positions up to which daemons have published all their conclusions. Pure.

DAEMON_READY, DAEMON_HEARTBEAT and DAEMON_STOPPED hold the daemon's position. Unless the daemon is still catching up,
it has published all conclusions from events up to there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import cast

from app.events import (
    DaemonFact,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    Event,
    EventVoided,
    Payload,
)

ACCOUNTS: frozenset[type[Payload]] = frozenset({DaemonStarted, DaemonReady, DaemonHeartbeat, DaemonStopped})
FURTHER = (DaemonHeartbeat, DaemonReady, DaemonStopped)


class Accounts:
    """The positions up to which daemons have published everything.

    Args:
        settled: position by daemon, up to which everything is published.
        ready: daemons, as daemon@node, that are ready.
    """

    def __init__(self, settled: Mapping[str, int] | None = None, ready: Iterable[str] = ()) -> None:
        self.settled = Counter(settled or {})
        self.ready = set(ready)

    def add(self, told: DaemonFact) -> None:
        """Take in a daemon's event about itself."""
        who = f"{told.daemon}@{told.node}"
        if type(told) is DaemonStarted:
            self.ready.discard(who)
        elif type(told) is DaemonReady:
            self.ready.add(who)
        if isinstance(told, FURTHER) and who in self.ready:
            self.reach(told.daemon, told.position)

    def reach(self, daemon: str, position: int) -> None:
        """Note that a daemon has published all conclusions up to a position."""
        self.settled[daemon] = max(self.settled[daemon], position)


class Past:
    """A daemon's published conclusions, up to a settled position.

    Args:
        daemon: its name.
        emits: the types of its conclusions.
        settled: a position up to which it has published everything.

    Attributes:
        recorded: (id, type) of its published conclusions.
    """

    def __init__(self, daemon: str, emits: frozenset[type[Payload]], settled: int) -> None:
        self._daemon, self._emits = daemon, emits
        self._accounts = Accounts({daemon: settled})
        self.recorded: set[tuple[str, str]] = set()
        self._voided: set[int] = set()

    @property
    def reads(self) -> frozenset[type[Payload]]:
        """Event types to feed to ``add``, from the whole journal."""
        return self._emits | ACCOUNTS | {EventVoided}

    @property
    def settled(self) -> int:
        """The position up to which the daemon has published everything."""
        return self._accounts.settled[self._daemon]

    @property
    def voided(self) -> frozenset[int]:
        """Positions of the events that operators voided."""
        return frozenset(self._voided)

    def add(self, events: Iterable[Event[Payload]]) -> None:
        """Take in events, in order."""
        for event in events:
            if type(event.data) in ACCOUNTS:
                self._accounts.add(cast("DaemonFact", event.data))
            elif type(event.data) is EventVoided:
                self._voided.add(event.data.position)
            else:
                self.recorded.add((event.id, event.data.event_type))
