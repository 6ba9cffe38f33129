"""How far daemons have come by their own accounts. Pure.

A daemon says at which position it is when it is ready, with every sign of life, and when it leaves. Unless it is still
catching up, it has published by then all that followed from events up to there.
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
        settled: position by daemon.
        ready: daemons, as daemon@node, that are ready.
    """

    def __init__(self, settled: Mapping[str, int] | None = None, ready: Iterable[str] = ()) -> None:
        self.settled = Counter(settled or {})
        self.ready = set(ready)

    def add(self, told: DaemonFact) -> None:
        """Take in what a daemon says of itself."""
        who = f"{told.daemon}@{told.node}"
        if type(told) is DaemonStarted:
            self.ready.discard(who)
        elif type(told) is DaemonReady:
            self.ready.add(who)
        if isinstance(told, FURTHER) and who in self.ready:
            self.reach(told.daemon, told.position)

    def reach(self, daemon: str, position: int) -> None:
        """Note that a daemon has published what followed up to a position."""
        self.settled[daemon] = max(self.settled[daemon], position)


class Past:
    """What is settled about a daemon: how far it had come, and what it had published of its conclusions by then.

    Args:
        daemon: its name.
        emits: the types of its conclusions.
        settled: a position that it is known to have reached.

    Attributes:
        recorded: (id, type) of what it published.
    """

    def __init__(self, daemon: str, emits: frozenset[type[Payload]], settled: int) -> None:
        self._daemon, self._emits = daemon, emits
        self._accounts = Accounts({daemon: settled})
        self.recorded: set[tuple[str, str]] = set()
        self._voided: set[int] = set()

    @property
    def reads(self) -> frozenset[type[Payload]]:
        """The types that it has to see, from the journal's first event to its last."""
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
