"""The broker's table of daemons (ADR-009), without a bus."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.app.bus.broker import MAX_WAIT_S
from flyball.app.bus.ports import Sign
from flyball.app.bus.presence import LOOK_S, MOST_DAEMONS, RECALLED_EVENTS, ROLL_CALL_EVENTS, ROLL_CALL_S, PresenceTable
from flyball.app.bus.sequencer import JournalPublisher
from flyball.app.config import Deployment
from flyball.app.events import (
    ClockTick,
    DaemonFailed,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    NodeLost,
    NodeReturned,
    Payload,
    RollCall,
    originate,
)
from flyball.app.journal.memory import MemoryJournal
from flyball.daemons.clock import SystemClock

SILENT = Deployment().node_silent_seconds
WHO = {"daemon": "training", "node": "gpu1"}
NAME = "training@gpu1"
STARTED = DaemonStarted(**WHO, pid=1, version="1")
READY = DaemonReady(**WHO, position=5, capacity=1)
STOPPED = DaemonStopped(**WHO, position=6)
ALIVE = Sign(position=7, lag=0, jobs=1, requests=1)
STARTING = Sign(position=None, lag=3, jobs=0, requests=0)


class Table:
    """A presence table with a clock. Published facts are folded into the table, as in the broker."""

    def __init__(self) -> None:
        self.presence, self.now = PresenceTable(SILENT), 0.0

    def tell(self, *facts: Payload) -> None:
        self.presence.fold(facts, self.now)

    def hear(self, sign: Sign = ALIVE, name: str = NAME) -> None:
        self.presence.hear(name, sign, self.now)

    def at(self, now: float) -> list[Payload]:
        """Set the time and return the published facts without roll calls."""
        self.now = now
        facts = self.presence.due(now, 0)
        self.presence.fold(facts, now)
        return [fact for fact in facts if not isinstance(fact, RollCall)]

    def kinds(self, now: float) -> list[type[Payload]]:
        return [type(fact) for fact in self.at(now)]


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.mark.parametrize("fact", [STARTED, READY], ids=["started", "ready"])
def test_daemon_without_a_sign_is_lost_within_ten_seconds(table: Table, fact: Payload) -> None:
    table.tell(fact)
    assert table.at(SILENT - 0.01) == []
    assert table.at(SILENT + LOOK_S) == [NodeLost(**WHO, silent_seconds=SILENT + LOOK_S)]
    assert SILENT + LOOK_S + MAX_WAIT_S < 10, "the broker may wait before it looks"
    assert table.at(1000.0) == [], "it is reported once"


def test_daemon_that_shows_life_is_never_lost(table: Table) -> None:
    table.tell(READY)
    for second in range(0, 100, 8):
        assert table.at(float(second)) == []
        table.hear()


def test_daemon_that_stopped_and_the_broker_are_not_in_the_table(table: Table) -> None:
    table.tell(READY, STOPPED)
    assert table.at(1000.0) == []
    assert table.presence.table(1000.0) == ()
    table.tell(DaemonReady(daemon="broker", node="head", position=1, capacity=0))
    assert table.presence.table(0.0) == ()


def test_daemon_that_failed_is_lost_unless_it_starts_again(table: Table) -> None:
    failed = DaemonFailed(**WHO, error="disk full")
    table.tell(READY, failed)
    table.at(5.0)
    table.tell(STARTED)
    assert table.at(SILENT + 1) == []
    table.tell(failed)
    assert table.kinds(2 * SILENT + 1) == [NodeLost]


def test_lost_daemon_that_is_heard_again_returns_once(table: Table) -> None:
    table.tell(READY)
    table.at(10.0)
    table.now = 40.0
    table.hear()
    assert table.at(40.1) == [NodeReturned(**WHO, silent_seconds=40.0)]
    table.hear()
    assert table.at(41.0) == []
    assert table.kinds(60.0) == [NodeLost]


def test_lost_daemon_that_was_not_ready_returns_when_it_is(table: Table) -> None:
    """NODE_RETURNED must not precede DAEMON_READY. NODE_RETURNED means that the daemon works as before."""
    table.tell(STARTED)
    assert [type(fact) for fact in table.at(10.0)] == [NodeLost]
    for sign in (STARTING, ALIVE):
        table.hear(sign)
        assert table.at(table.now + 1) == []
    table.tell(READY)
    assert table.at(table.now + 5) == []
    assert not table.presence.table(table.now)[0].lost


@pytest.mark.parametrize(
    ("happens", "sign"),
    [((), STARTING), ((STARTED,), STARTING), ((STARTED,), ALIVE), ((READY,), ALIVE)],
    ids=["a first sign that overtakes DAEMON_STARTED", "starting", "started", "ready"],
)
def test_lost_daemon_that_starts_again_does_not_return(table: Table, happens: tuple, sign: Sign) -> None:
    """DAEMON_READY replaces NODE_RETURNED, because it also has the capacity."""
    table.tell(READY)
    table.at(10.0)
    table.tell(*happens)
    table.hear(sign)
    assert table.at(11.0) == []


@pytest.mark.parametrize("fact", [STARTED, READY, STOPPED], ids=["started", "ready", "stopped"])
def test_pending_return_ends_with_the_daemons_next_fact(table: Table, fact: Payload) -> None:
    """A connection's frames and the sign behind them come in one turn, and the sign is heard first.

    NODE_RETURNED after DAEMON_STOPPED would give jobs to a daemon that is gone.
    """
    table.tell(READY)
    table.at(10.0)
    table.hear()
    table.tell(fact)
    assert table.at(11.0) == []


def test_sign_is_shown_with_its_age(table: Table) -> None:
    table.tell(READY)
    table.hear()
    [present] = table.presence.table(3.5)
    assert (present.daemon, present.node, present.sign) == ("training", "gpu1", ALIVE)
    assert (present.heard_seconds_ago, present.lost) == (3.5, False)


def test_table_is_bounded_and_forgets_the_longest_silent(table: Table) -> None:
    for number in range(MOST_DAEMONS + 5):
        table.now = float(number)
        table.tell(DaemonReady(daemon="training", node=f"gpu{number}", position=1, capacity=1))
    nodes = {present.node for present in table.presence.table(table.now)}
    assert nodes == {f"gpu{number}" for number in range(5, MOST_DAEMONS + 5)}


class TestRollCall:
    def test_roll_calls_come_at_the_start_and_often_enough(self, table: Table) -> None:
        calls = [now for now in range(0, 8000, 10) if any(isinstance(f, RollCall) for f in table.presence.due(now, 0))]
        assert calls == [0, ROLL_CALL_S, 2 * ROLL_CALL_S]
        other = Table()
        calls = [head for head in range(0, 200_000, 100) if other.presence.due(0.0, head)]
        assert calls == [0, 50_000, 100_000, 150_000]
        assert RECALLED_EVENTS >= 2 * ROLL_CALL_EVENTS

    def test_roll_call_has_positions_of_ready_daemons_only(self, table: Table) -> None:
        table.tell(READY, DaemonStarted(daemon="feedback", node="head", pid=2, version="1"))
        table.hear()
        table.hear(STARTING, "feedback@head")
        [call] = [fact for fact in table.presence.due(0.0, 0) if isinstance(fact, RollCall)]
        assert [(one.daemon, one.position, one.lost) for one in call.daemons] == [
            ("feedback", None, False),
            ("training", 7, False),
        ]


class Journaled:
    """A journal of facts from which a new table is recalled."""

    def __init__(self, *facts: Payload) -> None:
        self.journal = MemoryJournal()
        self._publisher, self._said = JournalPublisher(self.journal, SystemClock()), 0
        self.tell(*facts)

    def tell(self, *facts: Payload) -> None:
        for fact in facts:
            self._said += 1
            event = originate(fact, event_id=str(self._said), time=SystemClock().now())
            self._publisher.publish([event], "broker@head")

    def recalled(self) -> Table:
        table = Table()
        table.presence.recall(self.journal, 0.0)
        return table


def test_daemon_of_the_journal_is_lost_after_a_broker_start() -> None:
    assert Journaled(STARTED, READY).recalled().at(SILENT) == [NodeLost(**WHO, silent_seconds=SILENT)]


def test_recall_reads_from_the_last_roll_call_only(monkeypatch: pytest.MonkeyPatch) -> None:
    table, read, tick = Table(), list[int](), ClockTick(period_seconds=1.0)
    table.tell(READY)
    journaled = Journaled(*[tick] * 500, *table.presence.due(0.0, 0), tick)
    called, original = journaled.journal.head - 1, journaled.journal.read
    monkeypatch.setattr(journaled.journal, "read", lambda after, **how: read.append(after) or original(after, **how))
    assert [one.daemon for one in journaled.recalled().presence.table(0.0)] == ["training"]
    assert min(read) == called - 1


def test_recall_of_an_older_journal_knows_those_with_heartbeats() -> None:
    journaled = Journaled(DaemonHeartbeat(**WHO, position=3, lag=0, jobs=0, requests=()))
    assert [one.daemon for one in journaled.recalled().presence.table(0.0)] == ["training"]
    assert RECALLED_EVENTS >= 36 * 12 * 10, "several heartbeats of each daemon of a large cluster"


steps = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.sampled_from([STARTED, READY, STOPPED])),
        st.tuples(st.just("hear"), st.sampled_from([ALIVE, STARTING])),
        st.tuples(st.just("wait"), st.floats(0.1, 30.0)),
    ),
    max_size=40,
)


@given(steps=steps)
def test_restarted_broker_knows_its_journal_s_lost_daemons(steps: list[tuple[str, Any]]) -> None:
    """A table recalled from the journal equals the original table. Losses and returns alternate."""
    table, journaled, said = Table(), Journaled(), list[Payload]()
    for step, what in steps:
        if step == "tell":
            table.tell(what)
            journaled.tell(what)
            said.append(what)
        elif step == "hear":
            table.hear(what)
        facts = table.at(table.now + (what if step == "wait" else 0.6))
        journaled.tell(*facts)
        said += facts
    for before, after in pairwise(said):
        assert not (isinstance(after, NodeReturned) and not isinstance(before, NodeLost))
        assert not (isinstance(after, NodeLost) and not isinstance(before, DaemonStarted | DaemonReady | NodeReturned))
    known = {(one.daemon, one.lost) for one in table.presence.table(table.now)}
    assert {(one.daemon, one.lost) for one in journaled.recalled().presence.table(0.0)} == known
