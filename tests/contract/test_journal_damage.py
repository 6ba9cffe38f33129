"""Damage of a journal's file, in every bit of every table. A start refuses it, and a rebuild mends it."""

import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flyball.app.core import FlyballError
from flyball.app.events import RunConfigured
from flyball.app.events.frames import DamagedRecord, DeadLetter, Draft, Frame, FrameBuilder, Record, seal
from flyball.app.journal import DamagedDatabase, OtherFormat, SqliteJournal, SqliteJournalReader, rebuild
from flyball.app.journal.database import PAGE_BYTES, StorageError

TABLES = ("frames", "marks", "landmarks", "dead_letters")
FLIPS = 150
CONTENT = {
    "frames": "SELECT * FROM frames ORDER BY first",
    "marks": "SELECT * FROM marks ORDER BY producer, epoch",
    "landmarks": "SELECT * FROM landmarks ORDER BY first",
    "dead_letters": "SELECT * FROM dead_letters ORDER BY number",
    "schema": "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name",
    "format": "SELECT * FROM pragma_user_version, pragma_application_id",
}


def record(first: int, *bodies: bytes, producer: str = "trainer@a", base: int = 0, kind: str = "a") -> Record:
    builder = FrameBuilder(producer)
    builder.add([Draft(first + i, kind, "", body) for i, body in enumerate(bodies)])
    return seal(Frame.parse(builder.build(1, base)), first=first, recorded_us=first, source=producer)


def fill(path: Path) -> Path:
    """Write a journal with many rows in each table, some long."""
    with closing(SqliteJournal(path)) as journal:
        head, written = 0, defaultdict[str, int](int)
        for i in range(120):
            producer = f"producer{i % 40}@node"
            kind = RunConfigured.event_type if i % 50 == 0 else "a"
            bodies = (b"x" * (i * 37 % 400), b"y" * (20_000 if i % 30 == 7 else 10))
            records = [record(head + 1, *bodies, producer=producer, base=written[producer], kind=kind)]
            head, written[producer] = records[0].last, written[producer] + 2
            journal.append(
                records,
                marks={(producer, 1): written[producer]},
                dead_letters=[DeadLetter(head, producer, "broker", "why " * 20, b"z" * (i * 91 % 900))],
            )
    return path


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("sound") / "journal.sqlite")


@pytest.fixture
def file(sound: Path, tmp_path: Path) -> Path:
    """Return a copy of the sound journal."""
    return Path(shutil.copyfile(sound, tmp_path / "journal.sqlite"))


def alter(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


def content(path: Path) -> dict[str, Any] | None:
    """Return a file's content; None when it can't be read."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            return {name: db.execute(query).fetchall() for name, query in CONTENT.items()}
    except (sqlite3.Error, UnicodeDecodeError):
        return None


def damage(path: Path) -> list[str]:
    """Return the damage that verifying lists, or the error of opening."""
    try:
        with closing(SqliteJournalReader(path)) as reader:
            return [problem.message for problem in reader.damage()]
    except FlyballError as error:
        return [error.message]


def pages_of(path: Path, table: str) -> list[int]:
    with closing(sqlite3.connect(path)) as db:
        return [row[0] for row in db.execute("SELECT pageno FROM dbstat WHERE name = ? ORDER BY pageno", (table,))]


def used_bytes(path: Path, table: str) -> list[int]:
    """Return the offsets of a table's bytes in a file.

    These are the bytes of page headers, and all others that are not zero.
    """
    raw = path.read_bytes()
    starts = [(page - 1) * PAGE_BYTES for page in pages_of(path, table)]
    return [at for start in starts for at in range(start, start + PAGE_BYTES) if raw[at] or at < start + 12]


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def test_a_full_journal_has_no_damage(sound: Path) -> None:
    assert damage(sound) == []
    SqliteJournal(sound).close()


def test_verifying_while_a_broker_writes_finds_no_damage(tmp_path: Path) -> None:
    """Records and marks are read in one transaction."""
    file = fill(tmp_path / "journal.sqlite")
    with closing(SqliteJournal(file)) as journal, closing(SqliteJournalReader(file)) as reader:

        def write(statement: str) -> None:
            if "FROM marks" in statement:
                first = journal.head + 1
                journal.append([record(first, b"new", kind=RunConfigured.event_type)], marks={("trainer@a", first): 1})

        reader._connection.set_trace_callback(write)
        assert list(reader.damage()) == []
        assert journal.head > 240, "nothing was written meanwhile"


@pytest.mark.parametrize("table", [*TABLES, "sqlite_schema"])
def test_flips_are_found_or_change_nothing(table: str, sound: Path, tmp_path: Path) -> None:
    """Guarantee (ADR-005): a flipped bit of any table is detected."""
    file, before = tmp_path / "journal.sqlite", content(sound)
    used = used_bytes(sound, table)
    found = 0
    for number in range(FLIPS):
        at = used[number * len(used) // FLIPS]
        shutil.copyfile(sound, file)
        flip(file, at, number % 8)
        told = damage(file)
        found += bool(told)
        assert told or content(file) == before, f"byte {at} of {table}"
    assert found > FLIPS // 2


@pytest.mark.parametrize("table", TABLES)
def test_a_writer_refuses_flips_that_change_something(table: str, sound: Path, tmp_path: Path) -> None:
    """A start never goes on from damage: nothing is appended to it."""
    file, before = tmp_path / "journal.sqlite", content(sound)
    used = used_bytes(sound, table)
    for number in range(40):
        shutil.copyfile(sound, file)
        flip(file, used[number * len(used) // 40], number % 8)
        try:
            SqliteJournal(file).close()
        except FlyballError:
            continue
        assert content(file) == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE marks SET next = next + 4 WHERE producer = 'producer3@node'", "'producer3@node' in its table marks"),
        ("UPDATE landmarks SET bodies = x'00' WHERE first = 1", "the record at 1 in its table landmarks"),
        ("DELETE FROM landmarks", "its table landmarks lacks"),
        ("UPDATE dead_letters SET body = x'00' WHERE number = 9", "the checksum of 9 in its table dead_letters"),
        ("UPDATE frames SET bodies = 17 WHERE first = 5", "a value of another type in the record at position 5"),
        ("DROP TRIGGER forget_marks", "its schema is not the one of format 3"),
    ],
)
def test_damage_beside_the_records_is_told(change: str, told: str, file: Path) -> None:
    alter(file, change)
    assert any(told in problem for problem in damage(file))
    with pytest.raises((DamagedDatabase, DamagedRecord)):
        SqliteJournal(file)


def test_a_wrong_mark_is_never_acknowledged(sound: Path, tmp_path: Path) -> None:
    """Refuse marks that are too high. Otherwise the broker would acknowledge events that it never records."""
    with closing(SqliteJournal(fill(tmp_path / "journal.sqlite"))) as journal:
        journal._db.connection.execute("UPDATE marks SET next = next + 4")
        with pytest.raises(DamagedDatabase, match="table marks"):
            journal.mark("producer3@node", 1)


def test_a_mark_that_contradicts_the_records_is_damage(tmp_path: Path) -> None:
    with closing(SqliteJournal(tmp_path / "j.db")) as journal:
        journal.append([record(1, b"1", b"2")], marks={("trainer@a", 1): 1})
    assert damage(tmp_path / "j.db") == ["Damaged journal: 'trainer@a' in its table marks contradicts its records."]


def walk(reader: SqliteJournalReader) -> Iterator[Record]:
    position = 0
    while (chunk := reader.read(position, limit=1)).records:
        yield from chunk.records
        position = chunk.position


def test_an_index_that_leads_elsewhere_is_refused(file: Path) -> None:
    """Swap two child pages, whose rows are sound but at wrong keys."""
    raw = bytearray(file.read_bytes())
    with closing(sqlite3.connect(file)) as db:
        query = "SELECT pageno FROM dbstat WHERE name = 'frames' AND pagetype = ?"
        (inner,) = (row[0] for row in db.execute(query, ("internal",)))
    start = (inner - 1) * PAGE_BYTES
    cells = [start + int.from_bytes(raw[start + 12 + 2 * i : start + 14 + 2 * i]) for i in (0, 1)]
    first, second = (bytes(raw[cell : cell + 4]) for cell in cells)
    raw[cells[0] : cells[0] + 4], raw[cells[1] : cells[1] + 4] = second, first
    file.write_bytes(raw)
    assert damage(file)
    with closing(SqliteJournalReader(file)) as reader, pytest.raises(DamagedRecord):
        list(walk(reader))
    with pytest.raises(DamagedDatabase):
        SqliteJournal(file)


def test_a_journal_of_a_newer_format_is_refused(file: Path) -> None:
    alter(file, "PRAGMA user_version = 9")
    for opener in (SqliteJournal, SqliteJournalReader):
        with pytest.raises(OtherFormat, match="is of format 9; this version of Flyball knows formats up to 3"):
            opener(file)


def test_journal_of_format_1_is_migrated_with_its_content(sound: Path, file: Path) -> None:
    """Migrate the tables that later formats changed. Format 1 had a table for cursors."""
    alter(
        file,
        "CREATE TABLE cursors (name TEXT PRIMARY KEY, position INTEGER NOT NULL, checksum INTEGER NOT NULL)",
        "DROP TABLE landmarks",
        "DROP TABLE segments",
        "CREATE TABLE landmarks (type TEXT PRIMARY KEY, position INTEGER NOT NULL)",
        "PRAGMA user_version = 1",
    )
    with pytest.raises(OtherFormat, match="is of format 1, from an earlier version of Flyball"):
        SqliteJournalReader(file)
    SqliteJournal(file).close()
    assert damage(file) == []
    assert content(file) == content(sound)


@pytest.mark.parametrize("table", ["marks", "landmarks", "dead_letters"])
def test_a_rebuild_keeps_all_records_and_derives_the_rest(table: str, sound: Path, file: Path) -> None:
    before = content(sound)
    with file.open("r+b") as raw:
        raw.seek((pages_of(sound, table)[0] - 1) * PAGE_BYTES)
        raw.write(b"\xff" * 200)
    with pytest.raises(DamagedDatabase, match="is damaged"):
        SqliteJournal(file)
    rebuilt = rebuild(file)
    after = content(file)
    assert damage(file) == []
    assert before is not None
    assert after is not None
    assert [name for name in TABLES if after[name] != before[name]] == [table][: table == "dead_letters"]
    assert bool(rebuilt.lost) == (table == "dead_letters")
    assert damage(rebuilt.before), "the damaged file is kept"
    SqliteJournal(file).close()


def test_a_rebuild_keeps_what_an_earlier_one_kept(tmp_path: Path, file: Path) -> None:
    """Keep dead letters of which only the damaged file has a copy."""
    alter(file, "UPDATE dead_letters SET error = ''")
    damaged = content(rebuild(file).before)
    with pytest.raises(StorageError, match=r"journal\.sqlite\.damaged is there"):
        rebuild(file)
    assert content(tmp_path / "journal.sqlite.damaged") == damaged


def test_a_rebuild_names_the_dead_letters_that_are_lost(sound: Path, file: Path) -> None:
    alter(file, "UPDATE dead_letters SET body = x'00' WHERE number IN (9, 11)")
    found = [f"the checksum of {number} in its table dead_letters is wrong." for number in (9, 11)]
    lost = rebuild(file).lost
    assert [problem.removeprefix("Damaged journal: ") for problem in lost] == found
    before, after = content(sound), content(file)
    assert before is not None
    assert after is not None
    assert after["dead_letters"] == [row for row in before["dead_letters"] if row[0] not in (9, 11)]


def test_a_rebuild_refuses_damaged_records(file: Path) -> None:
    alter(file, "UPDATE frames SET bodies = x'00' WHERE first = 5")
    before = file.read_bytes()
    with pytest.raises(DamagedRecord, match="position 5"):
        rebuild(file)
    assert file.read_bytes() == before
