"""A run that may only be read. It is the folder of a backup, a snapshot of a disk, or another user's."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from recorded_run import recording

from flyball.app.events.frames import Frame, frame_of, seal
from flyball.app.journal import SqliteJournal

POWERS = "-dac_override,-dac_read_search"
"""Capabilities by which root may write everywhere."""

READING = """
import sys
from flyball.app.cli.group import main
for command in sys.argv[2:]:
    try:
        main(["--run", sys.argv[1], *command.split()])
    except SystemExit as end:
        print("exit", end.code, flush=True)
"""


def reading(run: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    """Run commands in one process, as a user who may not write."""
    command = [sys.executable, "-c", READING, str(run), *commands]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may write everywhere, and there is no setpriv to forbid it")
        command = ["setpriv", f"--bounding-set={POWERS}", f"--inh-caps={POWERS}", *command]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def run(tmp_path):
    """Return an unwritable folder with the recorded run's journal."""
    folder = tmp_path / "run"
    with closing(SqliteJournal(folder / "journal.sqlite")) as journal:
        for event in recording().events:
            frame = Frame.parse(frame_of([event.envelope], producer="p@a", epoch=1, base=journal.head))
            journal.append([seal(frame, first=journal.head + 1, recorded_us=event.recorded_us, source="p@a")])
    for name in ("journal.sqlite.lock", "journal.sqlite.reserve"):
        (folder / name).unlink()
    (folder / "journal.sqlite").chmod(0o444)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)


def test_sound_journal_is_read_where_one_may_only_read(run, tmp_path):
    """Read a backup's journal, which has no file beside it."""
    out = tmp_path / "events.jsonl"
    commands = ("journal verify", "tail -n 1 --json", f"journal export {out}", "status", "doctor --format json")
    done = reading(run, *commands)
    codes = [line for line in done.stdout.splitlines() if line.startswith("exit")]
    assert codes[:4] == ["exit 0", "exit 0", "exit 0", "exit 3"], done.stderr
    assert len(out.read_text().splitlines()) == len(recording().events)
    assert "is not running" in done.stderr
    assert codes_in(done.stdout).isdisjoint({"journal-damaged", "journal-unreadable"})
    assert [one.name for one in run.iterdir()] == ["journal.sqlite"]


def test_journal_that_cannot_be_read_is_not_called_damaged(run):
    """Tell a WAL without an index, and a mode, from damage."""
    run.chmod(0o755)
    (run / "journal.sqlite-wal").write_bytes(b"x" * 100)
    run.chmod(0o555)
    done = reading(run, "journal verify", "doctor --format json")
    assert "has a WAL without an index" in done.stderr
    assert codes_in(done.stdout) == {"journal-unreadable"}
    run.chmod(0o755)
    (run / "journal.sqlite-wal").unlink()
    (run / "journal.sqlite").chmod(0)
    done = reading(run, "journal verify", "doctor --format json")
    assert codes_in(done.stdout) == {"journal-unreadable"}


def codes_in(lines: str) -> set[str]:
    """Return the codes of doctor's findings."""
    found = (json.loads(line) for line in lines.splitlines() if line.startswith("{"))
    return {one["code"] for report in found for one in report.get("findings", ())}
