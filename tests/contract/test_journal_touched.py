"""Files of a journal that other programs touch while it is written.

Nothing more is acknowledged, and nothing acknowledged is lost without a word.
"""

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from archives import record_of

from flyball.app.bus import ZmqBus
from flyball.app.bus.ports import Sign
from flyball.app.events.frames import Record
from flyball.app.journal import DamagedDatabase, SqliteJournal, SqliteJournalReader, SqliteOutbox, SqliteStateStore
from flyball.app.journal.damage import rebuild
from flyball.app.journal.database import FileReplaced, FileTouched

EVENTS = 20
ROOT = Path(__file__).parents[2]
FAILING_DISK = """
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
static int fail(void) { if (!getenv("DISK_FAILS")) return 0; errno = EIO; return -1; }
int fsync(int descriptor) { return fail(); }
int fdatasync(int descriptor) { return fail(); }
"""
APPENDING = """
import os, sys
from pathlib import Path
from archives import record_of
from flyball.app.journal import SqliteJournal
journal = SqliteJournal(Path(sys.argv[1]))
journal.append([record_of(1, [b"x"])])
os.putenv("DISK_FAILS", "1")
try:
    journal.append([record_of(2, [b"y"])])
except Exception as error:
    print(type(error).__name__, error)
print(journal.head)
"""


def record(position: int, size: int = 1) -> Record:
    return record_of(position, [b"x" * size])


def run(code: str, *arguments: object, **environment: str) -> str:
    """Return what a Python program prints."""
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tests" / "support")))
    command = [sys.executable, "-c", code, *map(str, arguments)]
    variables = os.environ | {"PYTHONPATH": paths} | environment
    return subprocess.run(command, capture_output=True, text=True, check=True, env=variables).stdout


def journal_in(folder: Path) -> SqliteJournal:
    """Return an open journal, with a backup that holds its first half."""
    folder.mkdir()
    journal = SqliteJournal(folder / "j")
    for position in range(1, EVENTS + 1):
        journal.append([record(position)])
        if position == EVENTS // 2:
            with closing(SqliteJournalReader(folder / "j")) as reader:
                reader.backup(folder / "backup")
    return journal


def killed_journal(tmp_path: Path, *, restored: bool = False) -> Path:
    """Return the folder of a journal whose writer was killed, so that its WAL is there.

    ``restored``: the writer had gone on from a backup.
    """
    journal, folder = journal_in(tmp_path / "run"), tmp_path / "killed"
    if restored:
        journal.close()
        (tmp_path / "run" / "backup").replace(tmp_path / "run" / "j")
        journal = SqliteJournal(tmp_path / "run" / "j")
        for position in range(EVENTS // 2 + 1, EVENTS + 1):
            journal.append([record(position)])
    shutil.copytree(tmp_path / "run", folder)
    journal.close()
    return folder


def refuse(journal: SqliteJournal, error: type[Exception], why: str) -> None:
    """Check that a journal keeps nothing more, and close it."""
    with pytest.raises(error, match=why):
        journal.append([record(EVENTS + 1)])
    journal.close()


def head_of(path: Path) -> int:
    """Return a journal's end, as another process sees it."""
    code = "import sys; from pathlib import Path; from flyball.app.journal import SqliteJournal as J"
    return int(run(f"{code}; print(J(Path(sys.argv[1])).head)", path))


@pytest.mark.parametrize("lost", [("-wal",), ("-shm",), ("-wal", "-shm"), (".lock",)])
@pytest.mark.parametrize("replaced", [False, True])
def test_journal_without_its_side_files_loses_no_event(tmp_path, lost, replaced):
    """Guarantee: what was acknowledged outlasts the deletion of the WAL."""
    journal = journal_in(tmp_path / "run")
    for suffix in lost:
        path = tmp_path / "run" / f"j{suffix}"
        path.unlink()
        if replaced:
            path.touch()
    refuse(journal, FileTouched, "while this process wrote")
    assert head_of(tmp_path / "run" / "j") == EVENTS


@pytest.mark.parametrize("how", ["delete", "move", "replace"])
def test_journal_that_lost_its_name_is_copied_beside_it(tmp_path, how):
    """Keep the content that only the open file holds."""
    journal, path = journal_in(tmp_path / "run"), tmp_path / "run" / "j"
    match how:
        case "delete":
            path.unlink()
        case "move":
            path.rename(path.with_name("k"))
        case "replace":
            path.with_name("backup").rename(path)
    refuse(journal, FileReplaced, r"j\.rescued")
    assert head_of(path.with_name("j.rescued")) == EVENTS
    assert how != "replace" or head_of(path) == EVENTS // 2, "the WAL of the lost file is not applied to the new one"


def test_journal_that_is_overwritten_keeps_the_new_content(tmp_path):
    """Copy a backup over the open file, as `cp` does."""
    journal, path = journal_in(tmp_path / "run"), tmp_path / "run" / "j"
    shutil.copyfile(path.with_name("backup"), path)
    with path.open("ab") as file:  # another length, as a backup has of a longer journal
        file.write(bytes(4096))
    path.with_name("backup").write_bytes(path.read_bytes())
    refuse(journal, FileReplaced, "overwritten")
    assert path.read_bytes() == path.with_name("backup").read_bytes()
    assert not path.with_name("j-wal").exists()


def test_journal_whose_times_are_changed_loses_nothing(tmp_path):
    journal, path = journal_in(tmp_path / "run"), tmp_path / "run" / "j"
    os.utime(path, (1, 1))
    refuse(journal, FileReplaced, "was changed")
    assert head_of(path) == EVENTS, "the WAL is still there, and SQLite reads it"


def test_journal_whose_wal_is_cut_off_is_refused(tmp_path):
    journal, path = journal_in(tmp_path / "run"), tmp_path / "run" / "j"
    os.truncate(path.with_name("j-wal"), 0)
    refuse(journal, FileReplaced, r"j-wal was overwritten.*may be lost")


@pytest.mark.parametrize("deleted", [False, True])
def test_journal_whose_folder_is_gone_names_the_folder(tmp_path, deleted):
    journal = journal_in(tmp_path / "run")
    if deleted:
        shutil.rmtree(tmp_path / "run")
    else:
        (tmp_path / "run").rename(tmp_path / "elsewhere")
    refuse(journal, FileReplaced, r"The folder .*run was deleted or moved away")
    assert not (tmp_path / "run").exists()
    assert deleted or head_of(tmp_path / "elsewhere" / "j") == EVENTS


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler to make fsync fail")
def test_append_to_a_disk_that_fails_is_an_error(tmp_path):
    """Let fsync(2) return EIO: the record does not count as appended."""
    (tmp_path / "disk.c").write_text(FAILING_DISK)
    library = tmp_path / "disk.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "disk.c"], check=True)
    error, head = run(APPENDING, tmp_path / "j", LD_PRELOAD=str(library)).splitlines()
    assert error.startswith("StorageError")
    assert "disk I/O error" in error
    assert head == "1"


def test_state_store_whose_file_is_deleted_says_so(tmp_path):
    store = SqliteStateStore(tmp_path / "state")
    store.save(1, {("a", "b"): b"c"})
    (tmp_path / "state").unlink()
    with pytest.raises(FileReplaced, match="was deleted"):
        store.save(2, {})
    store.close()


@pytest.mark.parametrize("opened", [SqliteJournal, SqliteJournalReader, rebuild])
def test_backup_beside_a_stale_wal_is_refused(tmp_path, opened):
    """Restore a backup beside the WAL that a killed broker left: the hint leads to the backup's content."""
    folder = killed_journal(tmp_path)
    shutil.copyfile(folder / "backup", folder / "j")
    with pytest.raises(DamagedDatabase, match="j is a backup, and j-wal") as refused:
        opened(folder / "j")
    assert (folder / "j").read_bytes() == (folder / "backup").read_bytes()
    subprocess.run(refused.value.hint.removeprefix("To go on from the backup: "), shell=True, check=True)
    assert head_of(folder / "j") == EVENTS // 2


@pytest.mark.parametrize("restored", [False, True])
def test_wal_of_a_killed_broker_is_accepted(tmp_path, restored):
    """Kill the broker that wrote the journal, and one that went on from a restored backup."""
    folder = killed_journal(tmp_path, restored=restored)
    assert (folder / "j-wal").stat().st_size > 0
    with closing(SqliteJournalReader(folder / "j")) as reader:
        assert reader.head == EVENTS
    assert head_of(folder / "j") == EVENTS


async def test_bus_notices_a_deleted_outbox_at_the_next_sign(tmp_path):
    """Nothing has to be stored: a daemon sends signs of life in every turn."""
    outbox = SqliteOutbox(tmp_path / "outbox")
    bus = ZmqBus(f"ipc://{tmp_path}/bus", producer="feedback@here", outbox=outbox)
    sign = Sign(position=1, lag=0, jobs=0, requests=0)
    bus.show_life(sign)
    (tmp_path / "outbox").unlink()
    with pytest.raises(FileReplaced, match="outbox was deleted") as refused:
        bus.show_life(sign)
    assert refused.value.hint == "The daemon rebuilds it from the journal when it starts again."
    await bus.close()
    outbox.close()


def test_own_commits_checkpoints_and_vacuum_are_no_touch(tmp_path):
    """Write so much that SQLite checkpoints and resets the WAL by itself."""
    journal = journal_in(tmp_path / "run")
    for position in range(EVENTS + 1, EVENTS + 200):
        journal.append([record(position, 200_000)])
        journal.maintain(idle=position % 50 == 0)
    journal.shrink()
    journal.append([record(EVENTS + 200)])
    journal.close()
    assert head_of(tmp_path / "run" / "j") == EVENTS + 200
