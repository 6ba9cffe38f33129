"""The broker's table of living and lost daemons; pure (ADR-009).

Daemons publish when they start, are ready, and stop. In between they send signs of life, which are not recorded. Only
changes become events: NODE_LOST and NODE_RETURNED. An occasional ROLL_CALL repeats the table, so that a restarted
broker reads an hour of its journal, not a year. A daemon that the ROLL_CALL lacks is gone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile

from flyball.app.bus.ports import Present, Sign
from flyball.app.core import is_broker
from flyball.app.events import (
    DaemonFact,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    NodeLost,
    NodeReturned,
    Payload,
    RollCall,
    RollEntry,
)
from flyball.app.journal import JournalReader, history

READS: frozenset[type[Payload]] = frozenset(
    {DaemonStarted, DaemonReady, DaemonHeartbeat, DaemonStopped, NodeLost, NodeReturned, RollCall}
)
"""Types of the facts that the table is folded from. Journals of older versions hold DAEMON_HEARTBEAT."""

READ_TYPES = frozenset(payload.event_type for payload in READS)

MOST_DAEMONS = 2_000
"""Most daemons in the table. Beyond, the one that has been silent longest is dropped."""

ROLL_CALL_S = 3600.0
ROLL_CALL_EVENTS = 50_000
"""Seconds and events after which a roll call is due."""

LOOK_S = 0.5
"""Seconds between two searches for silent daemons."""

RECALLED_EVENTS = 2 * ROLL_CALL_EVENTS
"""Most events searched for a ROLL_CALL; older journals have none, but heartbeats of all living daemons among these."""


@dataclass(slots=True)
class Entry:
    """One daemon that has not stopped.

    Attributes:
        heard: time of its last sign or fact, or of the broker's start.
        position: position up to which the daemon has published everything; None until the daemon is ready.
        lost: NODE_LOST was published, and neither NODE_RETURNED nor a new start since.
        sign: its latest sign of life; None before the first.
    """

    heard: float
    position: int | None = None
    lost: bool = False
    sign: Sign | None = None


class PresenceTable:
    """Daemons by name, ``daemon@node``; times are seconds of the broker's clock.

    Args:
        silent_seconds: time without a sign of life after which a daemon is lost.
    """

    def __init__(self, silent_seconds: float) -> None:
        self._silent_seconds = silent_seconds
        self._entries: dict[str, Entry] = {}
        self._returned: dict[str, NodeReturned] = {}  # to be published
        self._checked_at, self._called_at, self._called_head = float("-inf"), float("-inf"), 0

    def recall(self, journal: JournalReader, now: float, *, give_up: Callable[[], bool] = lambda: False) -> None:
        """Fold a journal since its last ROLL_CALL. Every daemon counts as heard now."""
        facts = history(journal, after=_before_last_roll_call(journal), types=READS, on_dead=lambda _: None)
        self.fold((event.data for event in takewhile(lambda _: not give_up(), facts)), now)

    def fold(self, facts: Iterable[Payload], now: float) -> None:  # noqa: C901 - one case for each type
        """Apply recorded facts; those of other types are ignored.

        What a daemon says of itself ends its pending return, because NODE_RETURNED must not follow DAEMON_STOPPED.
        """
        for fact in facts:
            match fact:
                case DaemonStarted():
                    self._enter(_name(fact), Entry(now))
                case DaemonReady(position=position) | DaemonHeartbeat(position=position):
                    self._enter(_name(fact), Entry(now, position))
                case DaemonStopped():
                    self._entries.pop(_name(fact), None)
                    self._returned.pop(_name(fact), None)
                case NodeLost() | NodeReturned():
                    if entry := self._entries.get(_name(fact)):
                        entry.lost = isinstance(fact, NodeLost)
                case RollCall(daemons=daemons):
                    for daemon in daemons:
                        if (name := _name(daemon)) not in self._entries:
                            self._enter(name, Entry(now, daemon.position, daemon.lost))

    def hear(self, producer: str, sign: Sign, now: float) -> None:
        """Note a sign of life. Producers without DAEMON_STARTED are ignored.

        A lost daemon that is not ready returns by DAEMON_READY. So does a daemon that has started again, because its
        sign may come before its DAEMON_STARTED.
        """
        if (entry := self._entries.get(producer)) is None:
            return
        if entry.lost and entry.position is not None and sign.position is not None:
            silent_seconds = round(max(now - entry.heard, self._silent_seconds), 3)
            self._returned[producer] = NodeReturned(**_parts(producer), silent_seconds=silent_seconds)
            entry.lost = False
        entry.heard, entry.sign = now, sign
        if entry.position is not None and sign.position is not None:
            entry.position = sign.position

    def due(self, now: float, head: int) -> list[Payload]:
        """Return the facts to publish right after ``head``, the last folded event: returns, losses, a roll call."""
        facts: list[Payload] = [*self._returned.values()]
        self._returned.clear()
        if now - self._checked_at >= LOOK_S:
            self._checked_at = now
            for name, entry in self._entries.items():
                if not entry.lost and (silent := now - entry.heard) >= self._silent_seconds:
                    entry.lost = True
                    facts.append(NodeLost(**_parts(name), silent_seconds=round(silent, 3)))
        if now - self._called_at >= ROLL_CALL_S or head - self._called_head >= ROLL_CALL_EVENTS:
            self._called_at, self._called_head = now, head
            facts.append(RollCall(daemons=tuple(_roll_entry(*item) for item in sorted(self._entries.items()))))
        return facts

    def table(self, now: float) -> tuple[Present, ...]:
        """Return all daemons that have not stopped, sorted by name."""
        return tuple(
            Present(**_parts(name), heard_seconds_ago=max(0.0, now - entry.heard), lost=entry.lost, sign=entry.sign)
            for name, entry in sorted(self._entries.items())
        )

    def _enter(self, name: str, entry: Entry) -> None:
        """Add or replace an entry; a living daemon keeps its latest sign."""
        if is_broker(name):
            return
        if entry.position is not None and (before := self._entries.get(name)):
            entry.sign = before.sign
        self._entries[name] = entry
        self._returned.pop(name, None)
        if len(self._entries) > MOST_DAEMONS:
            del self._entries[min(self._entries, key=lambda daemon: self._entries[daemon].heard)]


def _before_last_roll_call(journal: JournalReader) -> int:
    """Return the position before the last ROLL_CALL.

    Without a ROLL_CALL, return the position ``RECALLED_EVENTS`` ago, or the one before the oldest event that is kept.
    """
    oldest = max(0, journal.head - RECALLED_EVENTS)
    for record in journal.headers_back(journal.head):
        if RollCall.event_type in record.frame.types or record.first <= oldest:
            return max(0, record.first - 1)
    return journal.first - 1


def _name(fact: DaemonFact | NodeLost | NodeReturned | RollEntry) -> str:
    return f"{fact.daemon}@{fact.node}"


def _parts(name: str) -> dict[str, str]:
    daemon, _, node = name.partition("@")
    return {"daemon": daemon, "node": node}


def _roll_entry(name: str, entry: Entry) -> RollEntry:
    return RollEntry(**_parts(name), position=entry.position, lost=entry.lost)
