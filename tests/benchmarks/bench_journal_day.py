"""Growth of the journal by a cluster's day, and its replay.

The cluster has 36 nodes and 12 configurations. Run with
``pytest tests/benchmarks/bench_journal_day.py -m benchmark -s``. Seconds are processor time, because other programs
disturb wall time. Sizes are of journals without heartbeats.
"""

import sys
from contextlib import closing
from pathlib import Path
from time import process_time

import pytest
from msgspec.structs import replace
from simulated_day import records_of, simulated_day

from flyball.app.events import DaemonHeartbeat
from flyball.app.journal import SqliteJournal, SqliteJournalReader
from flyball.app.journal.archiving import archive
from flyball.app.replay.replaying import replay_journal

pytestmark = pytest.mark.benchmark


@pytest.mark.timeout(1800)
def test_day_of_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = simulated_day()
    kept = [event for event in events if not isinstance(event.data, DaemonHeartbeat)]
    quiet = [replace(event, sequence=number) for number, event in enumerate(kept, 1)]
    sizes = dict[str, float]()
    for name, day in {"with": events, "without": quiet}.items():
        with closing(SqliteJournal(tmp_path / name / "journal.sqlite")) as journal:
            journal.append(list(records_of(day)))
            journal.maintain()
        sizes[name] = (tmp_path / name / "journal.sqlite").stat().st_size / 1e6
    began = process_time()
    (row,) = archive(tmp_path / "without" / "journal.sqlite", len(quiet))
    archiving = process_time() - began
    archived = (tmp_path / "without" / "archive" / row.name).stat().st_size / 1e6
    with closing(SqliteJournalReader(tmp_path / "with" / "journal.sqlite")) as reader:
        began = process_time()
        report = replay_journal(reader)
        replaying = process_time() - began
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(events):,} events with heartbeats, {sizes['with']:.1f} MB; {len(quiet):,} without, "
            f"{sizes['without']:.1f} MB live, {archived:.1f} MB archived in {archiving:.1f} s; "
            f"replay of the former in {replaying:.1f} s\n"
        )
    assert (report.position, report.differing) == (len(events), 0)
    assert archived < 0.25 * sizes["without"]
