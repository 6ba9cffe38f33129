"""Daemons without state begin at a snapshot (ADR-006). The result equals a fold of the whole journal."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from generated_run import generated, hasty, write_generated
from host_stage import Stage, WatchedBus, rows_of

from flyball.app.controllers.fold import Fold
from flyball.app.events import DaemonReady, EventVoided, SelfplayRequested
from flyball.app.events.frames import DeadLetter
from flyball.app.job_specs import JobContext
from flyball.app.journal import SqliteJournal, history
from flyball.app.journal.archiving import archive
from flyball.app.journal.memory import MemoryStateStore
from flyball.app.journal.opening import SqliteLocation
from flyball.app.journal.snapshots import positions
from flyball.daemons import snapshots
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.saved_state import SCHEMAS_KEY
from flyball.daemons.selfplay_worker import SelfplayWorker
from flyball.daemons.snapshots import take_snapshots

EVENTS = 2_500


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteJournal]:
    """Return a run's journal, mostly archived, with a snapshot near its end."""
    monkeypatch.setattr(snapshots, "IN_FLIGHT_EVENTS", 500)
    path = tmp_path / "journal.sqlite"
    write_generated(path, list(generated(EVENTS, settings=hasty(), seed=3)))
    take_snapshots(SqliteLocation(path))
    archive(path, 1_500)
    with closing(SqliteJournal(path)) as journal:
        journal.adopt()
        journal.maintain()
        yield journal


class LaterStage(Stage):
    """A stage that looks only at events recorded since it began. Reading a long history would take a while."""

    def __init__(self, journal: SqliteJournal) -> None:
        super().__init__()
        self.journal, self.bus, self._begun = journal, ReadBus(journal, self.clock), journal.head
        self.boots = journal.head  # otherwise the ids of DAEMON_READY would be those of an earlier stage

    def of(self, payload: type) -> list:
        return [event.data for event in history(self.journal, after=self._begun, types={payload})]


class ReadBus(WatchedBus):
    """A bus that remembers the least position after which it was read."""

    least = 1 << 62

    def subscribe(self, types=None, *, after=None):
        if types is not None and after is not None:
            self.least = min(self.least, after)
        return super().subscribe(types, after=after)


async def rebuilt(journal: SqliteJournal, daemon: str) -> tuple[dict, ReadBus]:
    """Start a daemon without state; return its rows and its bus."""
    stage, states = LaterStage(journal), MemoryStateStore()
    await stage.until(DaemonReady, stage.host(daemon, states))
    await stage.bus.close()
    return rows_of(states), stage.bus


@pytest.mark.parametrize(
    "daemon",
    [
        "training_trigger",
        "selfplay_scheduler",
        "selfplay_worker",
        "feedback",
        "training",
        "evaluation",
        "quality_monitor",
    ],
)
async def test_daemon_without_state_begins_at_the_snapshot(daemon: str, journal: SqliteJournal) -> None:
    known = {event.id for event in history(journal)}
    head = journal.head
    rows, bus = await rebuilt(journal, daemon)
    assert bus.least == positions(journal.archive.folder)[0] > EVENTS - 1_000
    assert not known & set(bus.asked), "nothing is published twice"
    for path in journal.archive.folder.glob("*.snapshot"):
        path.unlink()
    journal._db.connection.execute("DELETE FROM frames WHERE first > ?", (head,))
    journal._head = head
    whole, bus = await rebuilt(journal, daemon)
    assert bus.least == 0
    assert rows.keys() == whole.keys()
    differing = {key for key in rows if rows[key] != whole[key] and key[0] != "host"}
    assert not differing
    assert rows[SCHEMAS_KEY] == whole[SCHEMAS_KEY]


async def test_snapshot_with_an_event_voided_since_is_not_used(journal: SqliteJournal) -> None:
    """A fold of the journal without the event differs from the snapshot."""
    from flyball.app.bus.memory import MemoryBus
    from flyball.app.events import originate
    from flyball.daemons.clock import SystemClock

    (position, *_) = positions(journal.archive.folder)
    journal.append(dead_letters=[DeadLetter(position - 10, "p", "r", "why", b"")])
    bus = MemoryBus(journal, SystemClock(), producer="cli@laptop")
    voided = EventVoided(position=position - 10, reason="wrong")
    bus.record([originate(voided, event_id="void", time=SystemClock().now())])
    _, read = await rebuilt(journal, "training_trigger")
    assert read.least == 0
    take_snapshots(SqliteLocation(journal._path))
    _, read = await rebuilt(journal, "training_trigger")
    assert read.least == positions(journal.archive.folder)[0], "a snapshot without the event is used again"


def test_selfplay_rows_serve_every_node(journal: SqliteJournal) -> None:
    """Fold the rows of two nodes and of a new one."""
    from functools import partial

    requests = {event.data.worker for event in history(journal, types={SelfplayRequested})}
    assert len(requests) == 2
    last = max(event.sequence for event in history(journal, types={SelfplayRequested}))
    rows, pending = dict[str, dict](), 0
    for name in (*requests, "selfplay_worker@new"):
        identity = WorkerIdentity(name, name.partition("@")[2], JobContext(store=""))
        fold = Fold((partial(SelfplayWorker, identity=identity),))
        fold.feed(event for event in history(journal) if event.sequence <= last)
        rows[name] = fold.rows(SelfplayWorker.name)
        *_, worker = fold.reducers
        jobs = list(worker.jobs(rows[name], {}))
        assert {job.request.worker for job in jobs} <= {name} & requests
        pending += len(jobs)
    assert pending == len(rows["selfplay_worker@new"]) > 0
    assert len({tuple(sorted(one)) for one in rows.values()}) == 1
