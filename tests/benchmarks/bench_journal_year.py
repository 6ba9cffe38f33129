"""A start after a year of a cluster.

The cluster has 36 nodes and 12 configurations. Run with
``pytest tests/benchmarks/bench_journal_year.py -m benchmark -s``. DAYS=365 in the environment makes it a year, which
takes half an hour. One day is simulated and repeated. All but the latest 250,000 events, the default, are written to
segments, one a day. Archived events have their own positions and times; live events also have their own ids. The
snapshot near the end is folded from the last day only, because folding a whole year takes more than an hour. Then a
broker and daemons without state are started, as processes. Seconds are wall time, so the machine has to be quiet. With
YEAR=FOLDER the journal is kept in that folder, and used again the next time.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic, sleep

import pytest
from simulated_day import RepeatedDay, records_of, simulated_day, write_toml

from flyball.app.config.deployment import JournalSettings
from flyball.app.events import DaemonReady
from flyball.app.journal import Snapshot, SqliteJournal, SqliteJournalReader, history
from flyball.app.journal.queries import has_landmark, save_row, split
from flyball.app.journal.segments import write_segment
from flyball.app.journal.snapshots import write_snapshot
from flyball.daemons.registry import DAEMONS
from flyball.daemons.saved_state import READY_KEY, SCHEMAS_KEY, schemas_of
from flyball.daemons.snapshots import IN_FLIGHT_EVENTS, Unsettled, _record_end, _Snapshots

pytestmark = pytest.mark.benchmark
DAYS = int(os.environ.get("DAYS", "40"))
LIVE_EVENTS = JournalSettings().live_events
FOLDED_DAYS = 1
STARTED = ("training_trigger", "model_lifecycle", "selfplay_worker", "selfplay_scheduler")


def write_year(path: Path, days: int) -> RepeatedDay:
    """Write a journal of ``days`` days, archived but for its latest events."""
    day = RepeatedDay(list(records_of(simulated_day())))
    live = min(days, -(-LIVE_EVENTS // day.events))
    with closing(SqliteJournal(path)) as journal:
        for number in range(days - live):
            records = list(day.stamped(number))
            row = write_segment(journal.archive.folder, records, 0)
            with journal._db.transaction() as db:
                save_row(db, "segments", *row)
                for record in filter(has_landmark, records):
                    db.execute("INSERT INTO landmarks VALUES (?, ?, ?)", (record.first, *split(record)))
            journal._head, journal._archived = row.last, row.last
        for number in range(days - live, days):
            journal.append(list(day.records(number)))
            journal.maintain()
    return day


def write_snapshots(path: Path, position: int) -> None:
    """Write two snapshots: an empty one, and one near the end.

    The latter is folded from the position of the empty one. The day was recorded by daemons with a longer past, so not
    all decisions of this fold are in the journal.
    """
    reducers = dict.fromkeys(one for spec in DAEMONS.values() for one in spec.hosted)
    rows = {SCHEMAS_KEY: schemas_of(tuple(reducers)), READY_KEY: b"[]"}
    with closing(SqliteJournalReader(path)) as reader:
        write_snapshot(reader.archive.folder, Snapshot(position, rows), head_at(reader, position))
        end = _record_end(reader, reader.head - IN_FLIGHT_EVENTS)
        folded = _Snapshots(reader, end)
        assert folded.position == position
        with suppress(Unsettled):
            folded.advance(end)
        write_snapshot(reader.archive.folder, Snapshot(end, {**folded._rows, READY_KEY: b"[]"}), head_at(reader, end))


def head_at(reader: SqliteJournalReader, position: int) -> bytes:
    head = reader.head_at(position)
    assert head is not None
    return head


def size_of(folder: Path, pattern: str) -> float:
    return sum(path.stat().st_size for path in folder.rglob(pattern)) / 1e6


def started(run: Path, daemon: str, is_up: Callable[[], bool]) -> tuple[subprocess.Popen[bytes], float]:
    """Start a daemon; return its process and its seconds to start."""
    began = monotonic()
    command = (sys.executable, "-m", "flyball.app.cli", "--run", str(run), "daemon", "run", daemon)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not is_up():
        assert process.poll() is None, daemon
        sleep(0.05)
    return process, monotonic() - began


@pytest.mark.timeout(7200)
def test_start_after_many_days(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Path(os.environ.get("YEAR", tmp_path / "run"))
    path = run / "journal.sqlite"
    if not path.exists():
        run.mkdir(parents=True, exist_ok=True)
        write_toml(run)
        day = write_year(path, DAYS)
        write_snapshots(path, (DAYS - FOLDED_DAYS) * day.events)
    figures = dict[str, float]()
    began = monotonic()
    with closing(SqliteJournal(path)) as journal:
        figures["opening the journal"] = monotonic() - began
        head = journal.head
    processes = list[subprocess.Popen[bytes]]()
    try:
        broker, figures["broker, until it listens"] = started(run, "broker", (run / "bus.sock").exists)
        processes.append(broker)
        for daemon in STARTED:

            def is_ready(daemon: str = daemon) -> bool:
                with closing(SqliteJournalReader(path)) as reader:
                    found = history(reader, after=head, types={DaemonReady})
                    return any(event.data.daemon == daemon for event in found)

            process, figures[f"{daemon} without state, until it is ready"] = started(run, daemon, is_ready)
            processes.append(process)
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()
    with capsys.disabled():
        sys.stdout.write(
            f"\n{head:,} events, {size_of(run, 'journal.sqlite'):,.0f} MB live, "
            f"{size_of(run, '*.segment'):,.0f} MB of segments\n"
        )
        for name, seconds in figures.items():
            sys.stdout.write(f"  {name:<60} {seconds:>7.2f} s\n")
    assert head > DAYS * 10_000
