"""Recomputed conclusions of a replay, compared with the recorded ones. Pure.

Ids follow from (controller, cause, index), so a conclusion and its record find each other by id. A daemon publishes its
conclusions in the order of their causes, and, once it is ready, only then says that it has come further: what it must
have published by its own account, and did not, is missing; what it may still have to publish at the journal's end is in
flight.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from pydantic import TypeAdapter

from app.controllers.fold import Conclusion
from app.events import DaemonFact, DaemonStarted, Envelope, Event, Payload, Value, decode, encode, id_in
from app.events.frames import Stored
from daemons.accounts import ACCOUNTS, Accounts
from daemons.registry import DAEMONS
from daemons.spec import DaemonSpec

KEPT = 100
"""Differences that are kept; all are counted."""


class Difference(Value):
    """Where recorded and recomputed conclusions part.

    Attributes:
        kind: the contents differ, there is no record though the daemon had come past it, or nothing concludes it.
        position: of the cause; of the record when nothing concludes it.
        event_id: of the conclusion.
        by: the controller; the source when nothing concludes it.
        recorded_at: position of the record.
        recomputed: the recomputed event as it would be published.
    """

    kind: Literal["changed", "missing", "unexpected"]
    position: int
    event_id: str
    by: str
    recorded_at: int | None
    recomputed: bytes | None

    def envelope(self) -> Envelope[Payload] | None:
        """Return the recomputed event."""
        return None if self.recomputed is None else decode(self.recomputed)


class Handover(Value):
    """A change of a daemon's program, with its differences from earlier decisions.

    Attributes:
        daemon: its name.
        version: of the program that decides since then.
        position: of the first event after the change.
        differing: decisions about earlier events that only one of the programs takes, or that differ.
    """

    daemon: str
    version: str
    position: int
    differing: int


@dataclass(slots=True)
class Saved:
    """A ledger as it is written down."""

    pending: list[tuple[str, int, bytes]] = field(default_factory=list)
    settled: dict[str, int] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    matched: dict[str, int] = field(default_factory=dict)
    foreign: int = 0
    differences: list[Difference] = field(default_factory=list)
    differing: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    handovers: dict[str, Handover] = field(default_factory=dict)


_SAVED: TypeAdapter[Saved] = TypeAdapter(Saved)


class Ledger:
    """Conclusions that await their record, and counts of those that were recorded.

    Args:
        daemons: whose controllers conclude.
        first: differences before this position are not looked at.
        saved: what ``dump`` returned once.
        voids: (position of a voided event, position where it was voided) pairs. Conclusions in between
            are not compared: the recorded ones include the event, the recomputed ones do not.
    """

    def __init__(
        self,
        daemons: Mapping[str, DaemonSpec] = DAEMONS,
        *,
        first: int = 1,
        saved: bytes | None = None,
        voids: Collection[tuple[int, int]] = (),
    ) -> None:
        past = Saved() if saved is None else _SAVED.validate_json(saved)
        self._first, self._voids = first, tuple(voids)
        self._emits = {name: _emitted(spec) for name, spec in daemons.items() if spec.controllers}
        self._concluded = frozenset[type[Payload]]().union(*self._emits.values())
        self._host = {controller.name: name for name, spec in daemons.items() for controller in spec.controllers}
        self._accounts = Accounts(past.settled, past.ready)
        self._versions, self.handovers = past.versions, past.handovers
        envelopes = ((by, at, decode(body)) for by, at, body in past.pending)
        self._pending = {envelope.id: Conclusion(by, at, envelope) for by, at, envelope in envelopes}
        self._differences, self._differing = past.differences, Counter(past.differing)
        self.matched: Counter[str] = Counter(past.matched)
        self.foreign = past.foreign

    @property
    def differing(self) -> int:
        """How many conclusions differ, apart from those of programs that a daemon no longer runs."""
        return self._differing.total()

    @property
    def reads(self) -> frozenset[type[Payload]]:
        """The types that it has to see."""
        return self._concluded | ACCOUNTS

    def expect(self, conclusions: Iterable[Conclusion]) -> None:
        """Note conclusions that ought to be in the journal after their causes."""
        self._pending.update((conclusion.envelope.id, conclusion) for conclusion in conclusions)

    def enter(self, event: Event[Payload]) -> None:
        """Hold a recorded event against what was concluded."""
        envelope = event.envelope
        data = envelope.data
        if type(data) in ACCOUNTS:
            self._account(event.sequence, cast("DaemonFact", data))
        elif expected := self._pending.pop(envelope.id, None):
            self._compare(expected, event)
        elif type(data) in self._concluded and event.sequence >= self._first:
            self._judge_stranger(event)

    def _is_judged(self, position: int) -> bool:
        """Return whether conclusions from the event at a position are compared."""
        return position >= self._first and not any(event <= position <= void for event, void in self._voids)

    def settles(self, stored: Stored) -> bool:
        """Take a recorded event, unread, off those that wait, if it is what was concluded to the letter."""
        event_id = id_in(stored.body) or ""
        expected = self._pending.get(event_id)
        if expected is None or encode(expected.envelope) != stored.body:
            return False
        if (expected.envelope.type, expected.envelope.subject or "") != (stored.type, stored.subject):
            return False  # the frame's header is wrong
        del self._pending[event_id]
        self._agree(expected)
        return True

    def _account(self, position: int, told: DaemonFact) -> None:
        self._accounts.add(told)
        if type(told) is DaemonStarted and told.daemon in self._emits:
            before = self._versions.setdefault(told.daemon, told.version)
            if told.version != before:
                self._versions[told.daemon] = told.version
                self._hand_over(told.daemon, told.version, position)

    def _hand_over(self, daemon: str, version: str, position: int) -> None:
        """Set aside the differences from what another version of a daemon's program decided."""
        earlier = self.handovers[daemon].differing if daemon in self.handovers else 0
        differing = earlier + self._differing.pop(daemon, 0)
        self._differences = [one for one in self._differences if self._daemon_of(one) != daemon]
        self.handovers[daemon] = Handover(daemon=daemon, version=version, position=position, differing=differing)

    def _compare(self, expected: Conclusion, event: Event[Payload]) -> None:
        if expected.envelope == event.envelope:
            self._agree(expected)
        else:
            self._reached(expected)
            self._differ("changed", expected, event.sequence)

    def _agree(self, expected: Conclusion) -> None:
        self._reached(expected)
        if self._is_judged(expected.position):
            self.matched[expected.envelope.data.event_name] += 1

    def _reached(self, expected: Conclusion) -> None:
        self._accounts.reach(self._host[expected.by], expected.position - 1)

    def _judge_stranger(self, event: Event[Payload]) -> None:
        """Only what a daemon said that decides such things ought to follow from the history; an operator is free."""
        daemon = event.source.partition("@")[0]
        if type(event.envelope.data) not in self._emits.get(daemon, ()):
            self.foreign += 1
        elif not self._follows_from_voided(daemon, event.sequence):
            self._keep(_unexpected(event))

    def _follows_from_voided(self, daemon: str, position: int) -> bool:
        """Return whether a decision may follow from an event that was voided after it."""
        settled = self._accounts.settled[daemon]
        return any(voided < position and settled <= void for voided, void in self._voids)

    def _differ(self, kind: Literal["changed", "missing"], expected: Conclusion, recorded_at: int | None) -> None:
        if self._is_judged(expected.position):
            by, position, envelope = expected
            found = Difference(
                kind=kind,
                position=position,
                event_id=envelope.id,
                by=by,
                recorded_at=recorded_at,
                recomputed=encode(envelope),
            )
            self._keep(found)

    def _daemon_of(self, difference: Difference) -> str:
        return self._host.get(difference.by) or difference.by.partition("@")[0]

    def _keep(self, difference: Difference) -> None:
        daemon = self._daemon_of(difference)
        handover = self.handovers.get(daemon)
        if handover and difference.position < handover.position:
            self.handovers[daemon] = handover.replace(differing=handover.differing + 1)
            return
        self._differing[daemon] += 1
        self._differences.append(difference)
        if len(self._differences) >= 2 * KEPT:
            self._differences = self.differences()

    def differences(self) -> list[Difference]:
        """Return the first differences, in the order of the journal; an intruder before what it would have led to."""
        return sorted(self._differences, key=_place)[:KEPT]

    def settle(self) -> None:
        """Find out what is missing: conclusions past which their daemon had come without publishing them."""
        missing = [one for one in self._pending.values() if one.position <= self._accounts.settled[self._host[one.by]]]
        for one in missing:
            self._differ("missing", self._pending.pop(one.envelope.id), None)

    def in_flight(self) -> tuple[Conclusion, ...]:
        """Return the conclusions that wait for their record, in the order of their causes."""
        waiting = (one for one in self._pending.values() if self._is_judged(one.position))
        return tuple(sorted(waiting, key=lambda one: one.position))

    def dump(self) -> bytes:
        """Write it down."""
        self.settle()
        pending = [(one.by, one.position, encode(one.envelope)) for one in self.in_flight()]
        kept = (self.foreign, self._differences, dict(self._differing), self._versions, self.handovers)
        settled, ready = dict(self._accounts.settled), self._accounts.ready
        return _SAVED.dump_json(Saved(pending, settled, ready, dict(self.matched), *kept))


def _place(one: Difference) -> tuple[int, bool, int]:
    return one.position, one.kind != "unexpected", one.recorded_at or 0


def _emitted(spec: DaemonSpec) -> frozenset[type[Payload]]:
    return frozenset[type[Payload]]().union(*(controller.emits for controller in spec.controllers))


def _unexpected(event: Event[Payload]) -> Difference:
    return Difference(
        kind="unexpected",
        position=event.sequence,
        event_id=event.id,
        by=event.source,
        recorded_at=event.sequence,
        recomputed=None,
    )
