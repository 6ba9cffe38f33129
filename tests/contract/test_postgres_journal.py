"""The journal on PostgreSQL beyond the contract of journals: one writer, damage, versions, deletion (ADR-040)."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic, sleep

import pytest
from archives import record_of
from postgres_server import execute, new_schema, postgres_server

pytest.importorskip("psycopg")

import psycopg

from flyball.app.core import FlyballError
from flyball.app.events import RunConfigured
from flyball.app.events.frames import DamagedRecord, DeadLetter
from flyball.app.journal import Fenced, postgres, postgres_journal
from flyball.app.journal.database import (
    DamagedDatabase,
    DamagedRow,
    NotAJournal,
    OtherFormat,
    OutOfOrder,
    ServerRefused,
    ServerUnavailable,
    StorageError,
    StorageInUse,
)
from flyball.app.journal.ports import Snapshot
from flyball.app.journal.postgres_journal import PostgresJournal, PostgresJournalReader
from flyball.app.journal.postgres_tables import write_snapshot
from flyball.app.journal.segments import MissingEvents

GUIDE = Path(__file__).parents[2] / "ADR/guide/operating.md"
ROLES = "flyball", "flyball_reader"
KINDS = {1: RunConfigured.event_type}
LETTER = DeadLetter(2, "p", "r\0", "why ☹", b"body")


def one(first: int, body: bytes = b"x"):
    return record_of(first, [body], kinds=KINDS)


def append(journal: PostgresJournal, first: int, body: bytes = b"x") -> None:
    journal.append([one(first, body)], marks={("trainer@a", 1): first + 1})


def fill(url: str, count: int = 3) -> None:
    with closing(PostgresJournal(url)) as journal:
        journal.append([one(at, b"%d" % at) for at in range(1, count + 1)], marks={("trainer@a", 1): count + 1})
        journal.append(dead_letters=[LETTER])


def damage(url: str) -> list[FlyballError]:
    with closing(PostgresJournalReader(url)) as reader:
        return list(reader.damage())


def take_snapshot(url: str, position: int, value: bytes = b"state") -> None:
    with closing(PostgresJournalReader(url)) as reader, psycopg.connect(url, autocommit=True) as connection:
        head = reader.head_at(position) or b"another journal's"
        write_snapshot(connection, Snapshot(position, {("league", "hex"): value}), head)


@pytest.fixture
def filled(database: str) -> str:
    fill(database)
    return database


def test_everything_is_there_after_opening_again(filled: str) -> None:
    with closing(PostgresJournal(filled)) as again:
        assert (again.head, again.recorded_us, again.first) == (3, 3_000_000, 1)
        assert again.mark("trainer@a", 1) == 4
        assert [(dead.reporter, dead.error) for dead in again.dead_letters()] == [("r\0", "why ☹")]
        append(again, 4)
        again.append(marks={("trainer@a", 2**64 - 1): 7}, dead_letters=[LETTER])
        assert len(again.dead_letters()) == 1
    with closing(PostgresJournal(filled)) as again:
        assert (again.head, again.mark("trainer@a", 2**64 - 1)) == (4, 7)
    assert damage(filled) == []


def test_reader_sees_what_is_appended_meanwhile(filled: str) -> None:
    with closing(PostgresJournalReader(filled)) as reader, closing(PostgresJournal(filled)) as journal:
        assert reader.read(3).records == ()
        append(journal, 4, b"new")
        assert [record.frame.bodies() for record in reader.read(3).records] == [[b"new"]]
        with pytest.raises(StorageError, match="read-only"):
            reader.rows("UPDATE journal SET head = 0 RETURNING 1")


def test_reader_refuses_a_database_without_a_journal(database: str) -> None:
    with pytest.raises(NotAJournal, match="no journal"):
        PostgresJournalReader(database)


def test_two_schemas_of_a_database_hold_two_journals(filled: str, postgres: str) -> None:
    with closing(PostgresJournal(filled)) as one_journal, closing(PostgresJournal(new_schema(postgres))) as other:
        assert (one_journal.head, other.head) == (3, 0)


# Damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE frames SET bodies = '\\x33' WHERE first = 2",
        "UPDATE frames SET head = overlay(head PLACING '\\xff' FROM 21) WHERE first = 2",
        "UPDATE frames SET first = 20 WHERE first = 2",
        "DELETE FROM frames WHERE first = 2",
    ],
)
def test_damage_is_refused_and_names_the_position(filled: str, change: str) -> None:
    execute(filled, change)
    assert "position 2" in str(damage(filled)[0])
    with closing(PostgresJournalReader(filled)) as reader:
        with pytest.raises(DamagedRecord, match="position 2"):
            reader.read(0)
        if "bodies" not in change:
            with pytest.raises(DamagedRecord, match=r"position (2|20)\b"):
                list(reader.headers_back(99))
    with pytest.raises(DamagedRecord, match="position 2"):
        PostgresJournal(filled)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE marks SET next = 9", "marks"),
        ("UPDATE dead_letters SET error = 'x'", "dead_letters"),
        ("UPDATE landmarks SET bodies = '\\x00'", "landmarks"),
        ("UPDATE landmarks SET (head, bodies) = (SELECT head, bodies FROM frames WHERE first = 2), first = 2", "landm"),
        ("DELETE FROM landmarks", "landmarks"),
        ("UPDATE journal SET head = 2", "table journal"),
        ("UPDATE journal SET head = 4", "table journal"),
        ("DELETE FROM frames WHERE first = 3", "table journal"),
        ("DELETE FROM journal", "table journal"),
    ],
)
def test_damaged_side_rows_are_refused(filled: str, change: str, named: str) -> None:
    execute(filled, change)
    with pytest.raises(DamagedDatabase, match=named):
        PostgresJournal(filled)
    with closing(PostgresJournalReader(filled)) as reader, pytest.raises(DamagedDatabase, match=named):
        raise next(reader.damage())


def test_row_from_elsewhere_is_refused_despite_its_checksum(filled: str) -> None:
    """A mark below the events that its producer recorded would record them twice."""
    with closing(PostgresJournal(filled)) as journal:
        journal.append(marks={("trainer@a", 1): 1})
    with pytest.raises(DamagedDatabase, match="marks contradicts"):
        PostgresJournal(filled)


# One writer ------------------------------------------------------------------------------------------------------


def test_second_writer_is_refused_or_waits(filled: str) -> None:
    with closing(PostgresJournal(filled)) as first:
        with pytest.raises(StorageInUse):
            PostgresJournal(filled)
        asked = iter([False, False, True])
        with pytest.raises(StorageInUse):
            PostgresJournal(filled, wait=True, give_up=lambda: next(asked))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(PostgresJournal, filled, wait=True)
            append(first, 4)
            sleep(0.3)
            assert not waiting.done()
            first.close()
            with closing(waiting.result(timeout=10)) as second:
                assert second.head == 4


def superseded(url: str) -> tuple[PostgresJournal, PostgresJournal]:
    """Return a writer that lost its lock without noticing, and its successor."""
    first = PostgresJournal(url)
    first._writer.execute("SELECT pg_advisory_unlock_all()")
    return first, PostgresJournal(url)


def test_superseded_writer_changes_nothing(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_journal, "LIVE_EVENTS", 0)
    take_snapshot(filled, 2)
    first, second = superseded(filled)
    with closing(first), closing(second):
        first._alive_at = 0.0
        for change in (
            lambda: first.maintain(idle=False),
            lambda: first.append([one(4)], marks={("p", 1): 1}, dead_letters=[DeadLetter(0, "p", "r", "no", b"")]),
            lambda: first.append(marks={("p", 1): 1}),
            lambda: first.remove_dead_letter(1),
            lambda: first.forget(10_000_000),
        ):
            with pytest.raises(Fenced):
                change()
        append(second, 4, b"second")
        assert (second.mark("p", 1), len(second.dead_letters())) == (None, 1)
    with closing(PostgresJournal(filled)) as again:
        assert (again.head, again.first, again.mark("p", 1)) == (4, 1, None)
        assert again.read(3).records[0].frame.bodies() == [b"second"]


def test_append_that_waits_for_a_new_epoch_is_fenced(filled: str) -> None:
    """The epoch may change between the begin of an append and its lock of the row."""
    with closing(PostgresJournal(filled)) as journal, psycopg.connect(filled) as other, ThreadPoolExecutor(1) as pool:
        other.execute("UPDATE journal SET epoch = epoch + 1")
        waiting = pool.submit(append, journal, 4)
        sleep(0.3)
        assert not waiting.done()
        other.commit()
        with pytest.raises(Fenced):
            waiting.result(timeout=10)
    with closing(PostgresJournalReader(filled)) as reader:
        assert (reader.head, len(reader.read(3).records)) == (3, 0)


def test_append_to_a_journal_that_ends_elsewhere_is_refused(filled: str) -> None:
    with closing(PostgresJournal(filled)) as journal:
        execute(filled, "UPDATE journal SET head = 5")
        with pytest.raises(OutOfOrder, match="ends at 5, and not at 3"):
            append(journal, 4)


HALTED = """
import sys
from archives import record_of
from flyball.app.journal.postgres_journal import PostgresJournal
journal = PostgresJournal(sys.argv[1])
def append(first):
    journal.append([record_of(first, [b"first"])], marks={("trainer@a", 1): first + 1})
append(4)
journal.maintain()
print("written", flush=True)
sys.stdin.readline()
try:
    append(5)
except Exception as error:
    print(type(error).__name__)
"""


@pytest.fixture
def halted(filled: str) -> Iterator[subprocess.Popen[str]]:
    """Return a process that has written event 4, and was stopped by SIGSTOP."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", HALTED, filled], text=True, env=env, **pipes) as process:
        try:
            assert process.stdout.readline() == "written\n"
            process.send_signal(signal.SIGSTOP)
            yield process
        finally:
            process.kill()


def test_halted_writer_loses_its_lock_and_writes_nothing(filled: str, halted: subprocess.Popen[str]) -> None:
    began = monotonic()
    with closing(PostgresJournal(filled, wait=True)) as second:
        assert monotonic() - began < postgres.IDLE_SECONDS + 5
        append(second, 5, b"second")
        halted.send_signal(signal.SIGCONT)
        answer, _ = halted.communicate("go on\n")
        assert answer in ("Fenced\n", "ServerUnavailable\n")
        assert [record.frame.bodies() for record in second.read(3).records] == [[b"first"], [b"second"]]
        append(second, 6)
    assert damage(filled) == []


def test_writers_that_begin_together_make_one_journal(database: str) -> None:
    def write_one() -> None:
        with closing(PostgresJournal(database, wait=True)) as journal:
            append(journal, journal.head + 1)

    with ThreadPoolExecutor() as pool:
        for written in [pool.submit(write_one) for _ in range(4)]:
            written.result()
    with closing(PostgresJournalReader(database)) as reader:
        assert reader.head == 4


def test_idle_writer_that_is_maintained_keeps_its_lock(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "IDLE_SECONDS", 1.5)
    monkeypatch.setattr(postgres, "ALIVE_SECONDS", 0.1)
    with closing(PostgresJournal(filled)) as journal:
        sleep(2.0)  # a writer that starts may be silent for longer
        for _ in range(20):
            sleep(0.1)
            journal.maintain()
        append(journal, 4)
        sleep(2.0)
        with pytest.raises(ServerUnavailable, match="idle-session timeout"):
            append(journal, 5)
    with closing(PostgresJournal(filled)) as again:
        assert again.head == 4


def test_lost_connection_is_no_acknowledgement(filled: str) -> None:
    with closing(PostgresJournal(filled)) as journal:
        execute(filled, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%writer'")
        for _ in range(2):
            with pytest.raises(ServerUnavailable):
                append(journal, 4)


def append_until_lost(journal: PostgresJournal) -> int:
    """Append until the server is lost; return the position of the last acknowledged event."""
    with suppress(StorageError):
        while True:
            append(journal, journal.head + 1)
    return journal.head


def test_acknowledged_events_survive_a_crash_of_the_server() -> None:
    """Guarantee (ADR-040), with ``test_commit_waits_for_the_disk_whatever_the_role_sets`` for a loss of power."""
    acknowledged = 0
    with postgres_server() as server:
        for _ in range(3):
            with closing(PostgresJournal(server.url)) as journal, ThreadPoolExecutor(1) as pool:
                crash = pool.submit(lambda: (sleep(0.3), server.crash()))
                acknowledged = append_until_lost(journal)
                crash.result()
            server.start()
            with closing(PostgresJournalReader(server.url)) as reader:
                assert reader.head in (acknowledged, acknowledged + 1), "the last append may be committed"
                assert list(reader.damage()) == []
    assert acknowledged > 3


# Server and versions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_server_that_could_lose_events_is_refused(database: str, setting: str) -> None:
    def set_to(value: str) -> None:
        execute(database, f"ALTER SYSTEM SET {setting} = {value}")
        execute(database, "SELECT pg_reload_conf()")
        with psycopg.connect(database, autocommit=True) as connection:
            while connection.execute(f"SHOW {setting}").fetchone() != (value,):
                sleep(0.05)

    set_to("off")
    try:
        with pytest.raises(ServerRefused, match=f"{setting} = off"):
            PostgresJournal(database)
    finally:
        set_to("on")


def test_commit_waits_for_the_disk_whatever_the_role_sets(database: str) -> None:
    """Guarantee (ADR-040): acknowledged events survive a loss of power."""
    execute(database, "ALTER ROLE admin SET synchronous_commit = off")
    try:
        with closing(PostgresJournal(database)) as journal:
            assert journal._writer.execute("SHOW synchronous_commit").fetchone() == ("on",)
    finally:
        execute(database, "ALTER ROLE admin RESET synchronous_commit")


def test_warning_during_an_append_is_no_acknowledgement(filled: str) -> None:
    """PostgreSQL only warns if a commit was not copied to the machine that it should wait for."""
    with closing(PostgresJournal(filled)) as journal:
        execute(
            filled,
            """CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE WARNING 'not replicated'; RETURN new; END $$;
            CREATE TRIGGER warn BEFORE INSERT ON frames FOR EACH ROW EXECUTE FUNCTION warn()""",
        )
        with pytest.raises(StorageError, match="not replicated"):
            append(journal, 4)


def test_role_without_rights_is_named_with_the_remedy(database: str, filled: str) -> None:
    execute(database, "CREATE ROLE stranger LOGIN")
    schema, stranger = database.rpartition("%3D")[2], database.replace("admin@", "stranger@")
    with pytest.raises(ServerRefused, match=f"no schema {schema} that the user stranger may use"):
        PostgresJournalReader(stranger)
    execute(
        database,
        f"GRANT USAGE ON SCHEMA {schema} TO stranger; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO stranger",
    )
    with closing(PostgresJournalReader(stranger)) as reader:
        assert reader.head == 3
    with pytest.raises(ServerRefused, match="permission denied"):
        PostgresJournal(stranger)


def test_rights_of_the_guide_suffice(postgres: str) -> None:
    (statements,) = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    execute(postgres, statements)
    writer, reader = (f"{postgres.replace('admin@', f'{role}@')}&options=-csearch_path%3Drun1" for role in ROLES)
    with closing(PostgresJournal(writer)) as journal:
        append(journal, 1)
        with closing(PostgresJournalReader(reader)) as other:
            assert other.head == 1
            assert list(other.damage()) == []
            assert other.size().bytes > 0
    with pytest.raises(ServerRefused, match="permission denied"):
        PostgresJournal(reader)


def test_schema_that_may_not_be_filled_is_named(database: str) -> None:
    execute(database, "CREATE ROLE newcomer LOGIN")
    schema = database.rpartition("%3D")[2]
    execute(database, f"GRANT USAGE ON SCHEMA {schema} TO newcomer")
    with pytest.raises(ServerRefused) as refused:
        PostgresJournal(database.replace("admin@", "newcomer@"))
    assert refused.value.hint.endswith(f'GRANT CREATE ON SCHEMA "{schema}" TO "newcomer";')
    with pytest.raises(ServerRefused, match="no schema nowhere"):
        PostgresJournal(database.replace(schema, "nowhere"))


def test_server_that_is_away_is_named() -> None:
    with pytest.raises(ServerUnavailable, match="connection to server"):
        PostgresJournalReader("postgresql:///x?host=/nonexistent")


def test_text_of_the_driver_becomes_one_sentence() -> None:
    with pytest.raises(ServerUnavailable, match=r": closed unexpectedly\. Look"), postgres.server_errors():
        raise psycopg.OperationalError("closed\n\tunexpectedly.\n")


def test_journal_of_a_newer_version_is_refused(filled: str) -> None:
    execute(filled, "UPDATE journal SET format = 9")
    for kind in (PostgresJournal, PostgresJournalReader):
        with pytest.raises(OtherFormat, match="format 9"):
            kind(filled)


def test_older_journal_is_migrated_by_its_writer(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "MIGRATIONS", [["ALTER TABLE marks ADD COLUMN note text"]])
    with pytest.raises(OtherFormat, match="migrate"):
        PostgresJournalReader(filled)
    with closing(PostgresJournal(filled)) as journal, closing(PostgresJournalReader(filled)) as reader:
        assert reader.rows("SELECT note FROM marks") == [(None,)]
        assert journal.head == 3


# Snapshots and deletion ------------------------------------------------------------------------------------------


def test_latest_sound_snapshot_of_this_journal_is_read(filled: str) -> None:
    for position in (1, 2, 3, 99):
        take_snapshot(filled, position, b"%d" % position)
    with closing(PostgresJournalReader(filled)) as reader:
        assert reader.snapshot(99) == Snapshot(3, {("league", "hex"): b"3"})
        assert reader.snapshot(2) == Snapshot(2, {("league", "hex"): b"2"})
        assert reader.snapshot(0) is None
        execute(filled, "UPDATE snapshots SET content = content || '\\x00' WHERE position = 3")
        assert reader.snapshot(99) == Snapshot(2, {("league", "hex"): b"2"})
    assert [type(error) for error in damage(filled)] == [DamagedRow]


def test_only_old_events_behind_a_snapshot_are_deleted(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_journal, "LIVE_EVENTS", 10)
    fill(database, 100)
    with closing(PostgresJournal(database)) as journal:
        assert journal.forget(50_000_001) == []
        take_snapshot(database, 40)
        take_snapshot(database, 95)
        assert journal.forget(30_000_001) == [(1, 30)]
        assert journal.forget(90_000_001) == [(31, 40)]
        assert journal.forget(90_000_001) == []
        assert (journal.first, journal.head) == (41, 100)
        assert next(journal.ids(0))[0] == 41
        assert [record.first for record in journal.landmarks()] == [1]
    assert damage(database) == []
    with closing(PostgresJournal(database)) as journal, closing(PostgresJournalReader(database)) as reader:
        with pytest.raises(MissingEvents, match="1 to 40 were deleted"):
            reader.read(0)
        assert [record.first for record in reader.headers_back(99)][-1] == 41
        assert reader.read(40).records[0].first == 41
        append(journal, 101)
