"""Compare the recomputed conclusions of a replay with the recorded ones. Pure.

Ids derive from (controller, cause, index), so a conclusion and its record have the same id. A daemon publishes its
conclusions in the order of their causes, and then announces its position. A conclusion without a record is missing if
its cause lies up to that position; otherwise it is in flight.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from pydantic import TypeAdapter

from flyball.app.controllers.fold import Conclusion
from flyball.app.events import (
    DaemonFact,
    DaemonStarted,
    Envelope,
    Event,
    Payload,
    RollCall,
    Value,
    decode,
    encode,
    id_in,
)
from flyball.app.events.frames import Stored
from flyball.daemons.saved_state import ACCOUNTS, Accounts
from flyball.daemons.spec import DaemonSpec

KEPT = 100
"""Number of differences that are kept in detail; all are counted."""


class Difference(Value):
    """A difference between recorded and recomputed conclusions.

    Attributes:
        kind: changed (other contents), missing (no record although the daemon has passed the cause), or unexpected
            (recorded, but concluded by no controller).
        position: of the cause; for an unexpected event, of its record.
        event_id: of the conclusion.
        by: the controller; for an unexpected event, its source.
        recorded_at: position of the record; ``None`` if missing.
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
    """A change of a daemon's program, and the differences before it.

    Attributes:
        daemon: its name.
        version: of the new program.
        position: of the new program's ``DaemonStarted``.
        differing: number of differences before the change.
    """

    daemon: str
    version: str
    position: int
    differing: int


@dataclass(slots=True)
class Findings:
    """State of a reconciliation, as it is saved.

    Attributes:
        pending: controller, position of the cause, and event of each conclusion that awaits its record.
        settled: by daemon, the position up to which it has published all its conclusions.
        ready: daemons that are ready.
        matched: conclusions that agree with their record, by event name.
        foreign: recorded decisions, requests and observations of operators.
        differences: the first ones, fewer than twice ``KEPT``.
        differing: number of differences by daemon, without those counted in its handover.
        versions: of the present programs, by daemon.
        handovers: the latest one, by daemon.
    """

    pending: list[tuple[str, int, bytes]] = field(default_factory=list)
    settled: dict[str, int] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    matched: Counter[str] = field(default_factory=Counter)
    foreign: int = 0
    differences: list[Difference] = field(default_factory=list)
    differing: Counter[str] = field(default_factory=Counter)
    versions: dict[str, str] = field(default_factory=dict)
    handovers: dict[str, Handover] = field(default_factory=dict)


_FINDINGS: TypeAdapter[Findings] = TypeAdapter(Findings)


class Reconciliation:
    """Matches recomputed conclusions with recorded events.

    Args:
        daemons: specifications of the daemons whose controllers conclude.
        first: differences before this position are ignored.
        saved: an earlier result of ``dump``.
        voids: (position of a voided event, position where it was voided) pairs. Conclusions from events in between
            are not compared: the daemons had folded the voided event when they recorded theirs, but the replay skips
            it from the start.
    """

    def __init__(
        self,
        daemons: Mapping[str, DaemonSpec],
        *,
        first: int = 1,
        saved: bytes | None = None,
        voids: Collection[tuple[int, int]] = (),
    ) -> None:
        self.findings = Findings() if saved is None else _FINDINGS.validate_json(saved)
        self._first, self._voids = first, tuple(voids)
        self._emits = {
            name: frozenset[type[Payload]]().union(*(controller.emits for controller in spec.controllers))
            for name, spec in daemons.items()
            if spec.controllers
        }
        self._concluded = frozenset[type[Payload]]().union(*self._emits.values())
        self._host = {controller.name: name for name, spec in daemons.items() for controller in spec.controllers}
        self._accounts = Accounts(self.findings.settled, self.findings.ready)
        pending = (Conclusion(by, at, decode(body)) for by, at, body in self.findings.pending)
        self._pending = {conclusion.envelope.id: conclusion for conclusion in pending}

    @property
    def reads(self) -> frozenset[type[Payload]]:
        """The event types to pass to ``enter``."""
        return self._concluded | ACCOUNTS

    def expect(self, conclusions: Iterable[Conclusion]) -> None:
        """Add recomputed conclusions that await their record."""
        self._pending.update((conclusion.envelope.id, conclusion) for conclusion in conclusions)

    def enter(self, event: Event[Payload]) -> None:
        """Compare a recorded event with its conclusion."""
        data = event.data
        if type(data) in ACCOUNTS:
            self._account(event.sequence, cast("DaemonFact | RollCall", data))
        elif expected := self._pending.pop(event.id, None):
            if expected.envelope == event.envelope:
                self._agree(expected)
            else:
                self._mark_reached(expected)
                self._report("changed", expected, event.sequence)
        elif type(data) in self._concluded and event.sequence >= self._first:
            self._enter_unexpected(event)

    def settles(self, stored: Stored) -> bool:
        """Match an undecoded event with its conclusion byte by byte. Return whether they agree."""
        event_id = id_in(stored.body) or ""
        expected = self._pending.get(event_id)
        if expected is None or encode(expected.envelope) != stored.body:
            return False
        if (expected.envelope.type, expected.envelope.subject or "") != (stored.type, stored.subject):
            return False  # the frame's header contradicts the event
        del self._pending[event_id]
        self._agree(expected)
        return True

    def _account(self, position: int, fact: DaemonFact | RollCall) -> None:
        """Update the daemons' positions. If a program changes, move its differences into a handover."""
        self._accounts.add(fact)
        if not isinstance(fact, DaemonStarted) or fact.daemon not in self._emits:
            return
        findings, daemon = self.findings, fact.daemon
        if findings.versions.setdefault(daemon, fact.version) == fact.version:
            return
        findings.versions[daemon] = fact.version
        earlier = findings.handovers[daemon].differing if daemon in findings.handovers else 0
        differing = earlier + findings.differing.pop(daemon, 0)
        findings.differences = [earlier for earlier in findings.differences if self._daemon_of(earlier) != daemon]
        handover = Handover(daemon=daemon, version=fact.version, position=position, differing=differing)
        findings.handovers[daemon] = handover

    def _enter_unexpected(self, event: Event[Payload]) -> None:
        """Keep a decision that no controller concludes.

        An operator's decision counts as foreign instead. A decision that a voided event explains is dropped.
        """
        daemon = event.source.partition("@")[0]
        if type(event.data) not in self._emits.get(daemon, ()):
            self.findings.foreign += 1
            return
        position, settled = event.sequence, self._accounts.settled[daemon]
        if not any(voided < position and settled <= void for voided, void in self._voids):
            self._add_difference(
                Difference(
                    kind="unexpected",
                    position=position,
                    event_id=event.id,
                    by=event.source,
                    recorded_at=position,
                    recomputed=None,
                )
            )

    def _agree(self, expected: Conclusion) -> None:
        self._mark_reached(expected)
        if self._is_compared(expected):
            self.findings.matched[expected.envelope.data.event_name] += 1

    def _mark_reached(self, expected: Conclusion) -> None:
        self._accounts.reach(self._host[expected.by], expected.position - 1)

    def _report(self, kind: Literal["changed", "missing"], expected: Conclusion, recorded_at: int | None) -> None:
        if self._is_compared(expected):
            by, position, envelope = expected
            self._add_difference(
                Difference(
                    kind=kind,
                    position=position,
                    event_id=envelope.id,
                    by=by,
                    recorded_at=recorded_at,
                    recomputed=encode(envelope),
                )
            )

    def _is_compared(self, expected: Conclusion) -> bool:
        at = expected.position
        return at >= self._first and not any(event <= at <= void for event, void in self._voids)

    def _add_difference(self, difference: Difference) -> None:
        findings = self.findings
        daemon = self._daemon_of(difference)
        handover = findings.handovers.get(daemon)
        if handover and difference.position < handover.position:
            findings.handovers[daemon] = handover.replace(differing=handover.differing + 1)
            return
        findings.differing[daemon] += 1
        findings.differences.append(difference)
        if len(findings.differences) >= 2 * KEPT:
            findings.differences = self.differences()

    def _daemon_of(self, difference: Difference) -> str:
        return self._host.get(difference.by) or difference.by.partition("@")[0]

    def differences(self) -> list[Difference]:
        """Return the first differences in journal order. At one position, an unexpected event comes first."""
        order = sorted(
            self.findings.differences,
            key=lambda difference: (difference.position, difference.kind != "unexpected", difference.recorded_at or 0),
        )
        return order[:KEPT]

    def settle(self) -> None:
        """Report as missing each conclusion whose daemon has passed the cause without publishing it."""
        settled = self._accounts.settled
        for event_id, conclusion in list(self._pending.items()):
            if conclusion.position <= settled[self._host[conclusion.by]]:
                self._report("missing", self._pending.pop(event_id), None)

    def in_flight(self) -> tuple[Conclusion, ...]:
        """Return the conclusions that await their record, ordered by cause."""
        waiting = (conclusion for conclusion in self._pending.values() if self._is_compared(conclusion))
        return tuple(sorted(waiting, key=lambda conclusion: conclusion.position))

    def dump(self) -> bytes:
        """Settle, and return the state as JSON for ``saved``."""
        self.settle()
        pending = [(conclusion.by, conclusion.position, encode(conclusion.envelope)) for conclusion in self.in_flight()]
        settled, ready = dict(self._accounts.settled), self._accounts.ready
        return _FINDINGS.dump_json(replace(self.findings, pending=pending, settled=settled, ready=ready))
