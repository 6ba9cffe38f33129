"""Contract of journals: SQLite, SQLite with archived records, PostgreSQL, and memory."""

from contextlib import closing

import pytest
from archives import ArchivedJournal

from flyball.app.events import RunConfigured
from flyball.app.events.frames import DamagedRecord, DeadLetter, Draft, Frame, FrameBuilder, seal
from flyball.app.journal import SqliteJournal, SqliteJournalReader
from flyball.app.journal.database import OutOfOrder
from flyball.app.journal.memory import MemoryJournal


def record(first, *rows, at=1000, source="trainer@a"):
    builder = FrameBuilder(source)
    builder.add([Draft(first + i, event_type, "", body) for i, (event_type, body) in enumerate(rows)])
    return seal(Frame.parse(builder.build(1, 0)), first=first, recorded_us=at, source=source)


@pytest.fixture(params=["memory", "sqlite", "archived", "postgres"])
def journal(request, tmp_path):
    if request.param == "postgres":
        from flyball.app.journal.postgres_journal import PostgresJournal

        journal = PostgresJournal(request.getfixturevalue("database"))
    else:
        kinds = {"memory": lambda _: MemoryJournal(), "sqlite": SqliteJournal, "archived": ArchivedJournal}
        journal = kinds[request.param](tmp_path / "journal.db")
    yield journal
    journal.close()


@pytest.fixture
def filled(journal):
    journal.append([record(1, ("a", b"1"), ("b", b"2")), record(3, ("a", b"3"))])
    journal.append([record(4, ("c", b"4"), ("c", b"5"), ("c", b"6"), at=2000)])
    return journal


def firsts(chunk):
    return [r.first for r in chunk.records]


def test_an_empty_journal_has_head_zero(journal):
    assert (journal.head, journal.recorded_us) == (0, 0)
    assert journal.read(0).records == ()
    assert journal.read(0).position == 0


def test_filled_journal_is_read_in_parts_types_and_backwards(filled):
    assert (filled.head, filled.recorded_us) == (6, 2000)
    position, seen = 0, []
    while chunk := filled.read(position, limit=1).records:
        seen += firsts(filled.read(position, limit=1))
        position = chunk[-1].last
    assert seen == [1, 3, 4]
    assert firsts(filled.read(0, max_bytes=1)) == [1]
    assert firsts(filled.read(0, types={"b"})) == [1]
    assert filled.read(0, types={"b"}).position == 6
    assert firsts(filled.read(2, types={"c"})) == [4]
    assert filled.read(0, types=set()).records == ()
    assert [r.frame.bodies() for r in filled.read(0, types={"c"}).records] == [[b"4", b"5", b"6"]]
    assert [(r.first, r.last, r.frame.types) for r in filled.headers_back(3)] == [(3, 3, ("a",)), (1, 2, ("a", "b"))]
    assert [(first, tuple(ids)) for first, ids in filled.ids(2)] == [(3, (3,)), (4, (4, 5, 6))]


@pytest.mark.parametrize(
    ("after", "expected"), [(0, [1, 3, 4]), (1, [1, 3, 4]), (2, [3, 4]), (3, [4]), (5, [4]), (6, []), (9, [])]
)
def test_reading_begins_with_the_record_of_the_next_event(filled, after, expected):
    chunk = filled.read(after)
    assert firsts(chunk) == expected
    assert chunk.position == (6 if expected else after)


@pytest.mark.parametrize(("upto", "expected"), [(0, []), (2, [1]), (5, [4, 3, 1]), (99, [4, 3, 1])])
def test_headers_begin_with_the_record_that_holds_the_position(filled, upto, expected):
    assert [r.first for r in filled.headers_back(upto)] == expected


def test_landmarks_are_read_latest_first(journal):
    kind = RunConfigured.event_type
    journal.append([record(1, (kind, b"1"), ("a", b"2")), record(3, ("a", b"3")), record(4, (kind, b"4"))])
    journal.append([record(5, ("a", b"5"))])
    assert [(r.first, r.frame.bodies()) for r in journal.landmarks()] == [(4, [b"4"]), (1, [b"1", b"2"])]


@pytest.mark.parametrize("first", [6, 8])
def test_a_gap_or_an_overlap_is_refused_and_nothing_is_written(filled, first):
    with pytest.raises(OutOfOrder, match="cannot follow position 6"):
        filled.append([record(first, ("a", b"x"))], marks={("p", 1): 1})
    assert filled.head == 6
    assert filled.mark("p", 1) is None


def test_marks_are_kept_per_producer_and_of_latest_epochs(journal):
    assert journal.mark("a", 1) is None
    journal.append(marks={("a", 1): 5, ("b", 2**64 - 1): 7})
    journal.append(marks={("a", 1): 6})
    assert (journal.mark("a", 1), journal.mark("b", 2**64 - 1), journal.mark("a", 2)) == (6, 7, None)
    journal.append(marks={("other", 1): 1})
    for epoch in range(1, 101):
        journal.append([record(epoch, ("a", b"x"))], marks={("p", epoch): epoch})
        journal.append(marks={("p", 1): epoch})  # a long life beside the short ones
    kept = [epoch for epoch in range(1, 101) if journal.mark("p", epoch) is not None]
    assert kept == [1, *range(94, 101)]
    assert (journal.mark("p", 1), journal.mark("other", 1)) == (100, 1)


def test_the_latest_event_of_a_type_is_found_at_once(journal):
    kind = RunConfigured.event_type
    assert journal.landmark(kind) == 0
    journal.append([record(1, ("a", b"1"), (kind, b"2"), (kind, b"3"), ("a", b"4")), record(5, ("a", b"5"))])
    assert journal.landmark(kind) == 3
    journal.append([record(6, ("a", b"6"))])
    assert journal.landmark(kind) == 3
    journal.append([record(7, (kind, b"7")), record(8, ("a", b"8"))])
    assert journal.landmark(kind) == 7


def test_dead_letter_of_a_reporter_and_position_is_kept_once(journal):
    one, another = (DeadLetter(7, "p", reporter, "no", b"") for reporter in ("a", "b"))
    refused = DeadLetter(0, "p", "broker", "junk", b"")
    journal.append(dead_letters=[one, one, another])
    journal.append(dead_letters=[one, refused, refused])
    listed = [(dead.number, dead.reporter) for dead in journal.dead_letters()]
    assert listed == [(1, "a"), (2, "b"), (3, "broker"), (4, "broker")]


def test_dead_letters_are_listed_and_removed(journal):
    journal.append(dead_letters=[DeadLetter(4, "p", "r", "why", b"body"), DeadLetter(0, "q", "broker", "bad", b"")])
    first, second = journal.dead_letters()
    assert first == DeadLetter(4, "p", "r", "why", b"body", number=first.number)
    assert journal.remove_dead_letter(first.number) is True
    assert journal.remove_dead_letter(first.number) is False
    assert journal.dead_letters() == [second]


# What only a file guarantees -------------------------------------------------------------------------------------


def test_everything_is_there_after_opening_again(tmp_path):
    journal = SqliteJournal(tmp_path / "j.db")
    journal.append([record(1, ("a", b"1"))], marks={("p", 2): 1})
    journal.append(dead_letters=[DeadLetter(1, "p", "r", "why", b"x")])
    journal.close()
    again = SqliteJournal(tmp_path / "j.db")
    assert (again.head, again.recorded_us, again.mark("p", 2)) == (1, 1000, 1)
    assert len(again.dead_letters()) == 1
    again.close()


def damage(path, table_change):
    journal = SqliteJournal(path)
    journal.append([record(1, ("a", b"1")), record(2, ("a", b"22")), record(3, ("a", b"3"))])
    journal._db.connection.execute(table_change)
    journal.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE frames SET bodies = x'3333' WHERE first = 2",
        "UPDATE frames SET head = CAST(substr(head, 1, 20) || x'ff' || substr(head, 22) AS BLOB) WHERE first = 2",
        "UPDATE frames SET first = 20 WHERE first = 2",
        "DELETE FROM frames WHERE first = 2",
    ],
)
def test_damage_is_refused_loudly_and_names_the_position(tmp_path, change):
    """Guarantee (ADR-004): damage is refused loudly."""
    damage(tmp_path / "j.db", change)
    reader = SqliteJournalReader(tmp_path / "j.db")
    with pytest.raises(DamagedRecord, match="position 2"):
        reader.read(0)
    if "bodies" not in change:
        with pytest.raises(DamagedRecord, match=r"position (2|20)\b"):
            list(reader.headers_back(99))
    assert "position 2" in str(next(iter(reader.damage())))
    reader.close()


def test_damaged_ids_are_refused(tmp_path):
    damage(tmp_path / "j.db", "SELECT 1")
    journal = SqliteJournal(tmp_path / "j.db")
    change = "UPDATE frames SET head = CAST(substr(head, 1, 80) || 'x' AS BLOB) WHERE first = 2"
    journal._db.connection.execute(change)
    with pytest.raises(DamagedRecord, match="position 2"):
        list(journal.ids(0))
    journal.close()
    with pytest.raises(DamagedRecord, match="position 2"):
        SqliteJournal(tmp_path / "j.db")


@pytest.mark.parametrize(
    ("change", "damaged"), [("UPDATE frames SET bodies = x'44' WHERE first <> 2", "13"), ("SELECT 1", "")]
)
def test_all_damage_is_listed_and_sound_records_are_not(tmp_path, change, damaged):
    damage(tmp_path / "j.db", change)
    with closing(SqliteJournalReader(tmp_path / "j.db")) as reader:
        assert "".join(str(d).split("position ")[1][0] for d in reader.damage()) == damaged


def test_damage_after_the_wanted_types_is_not_read(tmp_path):
    damage(tmp_path / "j.db", "UPDATE frames SET bodies = x'00' WHERE first = 2")
    reader = SqliteJournalReader(tmp_path / "j.db")
    assert reader.read(0, types={"z"}).position == 3
    reader.close()
