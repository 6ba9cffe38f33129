"""``flyball journal archive``, ``delete``, ``export`` and ``import``, and commands on archived runs."""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result
from commands import invoke, refused, succeeded
from generated_run import generated, hasty, write_generated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import examples

from flyball.app.events.frames import Draft, Frame, FrameBuilder, seal, stored_in
from flyball.app.journal import SqliteJournal, SqliteJournalReader
from flyball.app.journal.cloudevents import BadLine, import_lines
from flyball.app.journal.opening import SqliteLocation

Flyball = Callable[..., Result]
EVENTS, LIVE, FIRST_BOUNDARY = 4_000, 500, 2_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with nothing archived."""
    folder = tmp_path_factory.mktemp("whole")
    write_generated(folder / "journal.sqlite", list(generated(EVENTS, settings=hasty(), seed=3)))
    return folder


@pytest.fixture(scope="module")
def archived(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the same run with all but the latest events archived."""
    folder = tmp_path_factory.mktemp("archived")
    shutil.copy(whole / "journal.sqlite", folder)
    assert flyball(folder, "journal", "archive", "--before", FIRST_BOUNDARY).exit_code == 0
    succeeded(flyball(folder, "journal", "archive", "--keep", LIVE), "Archived events")
    return folder


def flyball(folder: Path, *words: object) -> Result:
    return invoke(*words, run=folder)


def test_archive_keeps_the_latest_events_live_in_a_smaller_file(whole: Path, archived: Path) -> None:
    with closing(SqliteJournalReader(archived / "journal.sqlite")) as reader:
        (first,) = reader._connection.execute("SELECT min(first) FROM frames").fetchone()
    assert EVENTS - LIVE - 50 <= first <= EVENTS - LIVE + 1
    assert (archived / "journal.sqlite").stat().st_size < (whole / "journal.sqlite").stat().st_size / 2


def test_archive_again_has_nothing_to_do(archived: Path) -> None:
    succeeded(flyball(archived, "journal", "archive", "--keep", LIVE), "nothing to archive")


@pytest.mark.parametrize(
    "words",
    [
        ("tail", "--since", 3000),
        ("tail", "-n", 2000, "TRAINING_*"),
        ("journal", "verify"),
        ("replay", "--check"),
        ("status",),
        ("journal", "export", "-"),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_command_reads_an_archived_run_as_before(words: tuple[object, ...], whole: Path, archived: Path) -> None:
    before, after = (flyball(folder, *words) for folder in (whole, archived))
    assert before.exit_code == after.exit_code == (3 if words == ("status",) else 0)
    assert [line for line in after.stdout.splitlines() if "folded" not in line] == [
        line for line in before.stdout.splitlines() if "folded" not in line
    ]


def test_trace_crosses_the_boundary(whole: Path, archived: Path) -> None:
    events = [
        json.loads(line) for line in flyball(whole, "tail", "--since", EVENTS - LIVE + 50, "--json").stdout.splitlines()
    ]
    late = next(event for event in events if "causationid" in event)
    before, after = (flyball(folder, "trace", late["id"], "--all", "--json") for folder in (whole, archived))
    assert after.stdout == before.stdout
    told = json.loads(after.stdout)["events"]
    assert int(told[0]["sequence"]) < EVENTS - LIVE < int(late["sequence"])


def test_delete_names_what_is_gone(archived: Path, tmp_path: Path) -> None:
    run = shutil.copytree(archived, tmp_path / "run")
    with closing(SqliteJournalReader(run / "journal.sqlite")) as reader:
        last = reader.archive.segments()[0].last
    unsure = invoke("journal", "delete", "--before", EVENTS, run=run, input="n\n")
    assert unsure.exit_code == 1
    succeeded(flyball(run, "journal", "delete", "--before", EVENTS, "--yes"), f"Deleted the events 1 to {last}")
    assert flyball(run, "journal", "verify").exit_code == 0
    assert flyball(run, "tail", "-n", 5).stdout == flyball(archived, "tail", "-n", 5).stdout
    assert flyball(run, "tail", "--since", "9999d").stdout.splitlines()[0].split()[0] == str(last + 1)
    refused(flyball(run, "replay", "--check"), 1, f"The events 1 to {last} were deleted for good")
    with closing(SqliteJournal(run / "journal.sqlite")) as journal:
        assert journal.landmark("flyball.run.configured") == 1


def test_export_and_import_give_the_same_journal(archived: Path, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    assert flyball(archived, "journal", "export", file).exit_code == 0
    imported = flyball(tmp_path / "new", "journal", "import", file)
    assert (imported.exit_code, imported.stderr.split()[:2]) == (0, ["Imported", str(EVENTS)])
    assert flyball(tmp_path / "new", "journal", "export", "-").stdout.encode() == file.read_bytes()
    checked = [flyball(folder, "replay", "--check") for folder in (archived, tmp_path / "new")]
    assert [one.exit_code for one in checked] == [0, 0]
    assert len({line for one in checked for line in one.stdout.splitlines() if line.startswith("state hash")}) == 1
    refused(flyball(tmp_path / "new", "journal", "import", file), 1, "is there already")


@pytest.fixture(scope="module")
def lines(whole: Path) -> list[bytes]:
    return flyball(whole, "journal", "export", "-").stdout_bytes.splitlines(keepends=True)[:40]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda lines: lines[:10] + lines[11:], "Line 11: its sequence is 12, and 11 is next."),
        (lambda lines: lines[:10] + lines[9:], "Line 11: its sequence is 10, and 11 is next."),
        (lambda lines: [*lines[:3], b"{\n"], "Line 4: it is not an exported event"),
        (
            lambda lines: [*lines[:3], lines[3].replace(b'"type":"flyball.', b'"type":"unknown.')],
            "Line 4: Malformed event",
        ),
        (
            lambda lines: [*lines[:3], lines[3].replace(b'"recordedtime": "2026', b'"recordedtime": "2025')],
            "Line 4: its recordedtime",
        ),
    ],
)
def test_import_names_the_wrong_line_and_leaves_nothing(change, told, lines: list[bytes], tmp_path: Path) -> None:
    with pytest.raises(BadLine, match="Nothing was imported") as error:
        import_lines(SqliteLocation(tmp_path / "journal.sqlite"), change(lines))
    assert told in error.value.message
    assert not list(tmp_path.iterdir())


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_import_of_fuzzed_lines_is_refused_or_exact(data, lines: list[bytes], tmp_path_factory) -> None:
    """Export again, which gives the same lines as the first time."""
    path = tmp_path_factory.mktemp("fuzzed") / "journal.sqlite"
    number = data.draw(st.integers(0, 9))
    line = bytearray(lines[number])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(line) - 1))
        line[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    fuzzed = [*lines[:number], bytes(line), *lines[number + 1 : 10]]
    try:
        head = import_lines(SqliteLocation(path), fuzzed)
    except BadLine:
        assert not path.exists()
    else:
        assert head == 10
        with closing(SqliteJournalReader(path)) as reader:
            assert list(reader.damage()) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body + b" ",
        lambda body: body.replace(b",", b",\n", 1),
        lambda body: body.replace(b'":', b'" : ', 1),
        lambda body: body[:-1] + b',"source":"someone"}',
        lambda body: body[:-1] + b',"data_base64":"AAAA"}',
    ],
    ids=["trailing space", "line break", "spaces", "source", "data_base64"],
)
def test_export_keeps_the_bytes_of_unusual_events(change, whole: Path, tmp_path: Path) -> None:
    """Spell JSON in unusual ways, as any client may."""
    with closing(SqliteJournalReader(whole / "journal.sqlite")) as reader:
        record = reader.read(0).records[0]
    events = stored_in(record)
    bodies = [change(event.body) for event in events]
    builder = FrameBuilder("trainer@a")
    builder.add(
        [
            Draft(one, event.type, event.subject, body)
            for one, event, body in zip(record.frame.ids, events, bodies, strict=True)
        ]
    )
    path = tmp_path / "journal.sqlite"
    with closing(SqliteJournal(path)) as journal:
        frame = Frame.parse(builder.build(1, 0))
        journal.append([seal(frame, first=1, recorded_us=1_000_000, source="trainer@a")])
    exported = flyball(tmp_path, "journal", "export", "-").stdout_bytes.splitlines(keepends=True)
    assert len(exported) == len(bodies)
    import_lines(SqliteLocation(tmp_path / "again.sqlite"), exported)
    with closing(SqliteJournalReader(tmp_path / "again.sqlite")) as reader:
        assert reader.read(0).records[0].frame.bodies() == bodies


@pytest.mark.parametrize("subject", ["", "x" * ((1 << 16) - 1), "x" * (1 << 16)], ids=len)
def test_export_keeps_what_cannot_be_read(tmp_path: Path, subject: str) -> None:
    ids, bodies = [0, 1, (1 << 64) - 1], [b"no json", b"{}", b""]
    builder = FrameBuilder("trainer@a")
    builder.add([Draft(one, "a", subject[1:], body) for one, body in zip(ids, bodies, strict=True)])
    with closing(SqliteJournal(tmp_path / "journal.sqlite")) as journal:
        journal.append([seal(Frame.parse(builder.build(1, 0)), first=1, recorded_us=1_000_000, source="trainer@a")])
    exported = flyball(tmp_path, "journal", "export", "-").stdout_bytes
    lines = exported.replace(subject[1:].encode(), subject.encode()).splitlines(keepends=True)
    if len(subject) == 1 << 16:
        with pytest.raises(BadLine, match="Line 1: "):
            import_lines(SqliteLocation(tmp_path / "again.sqlite"), lines)
        return
    import_lines(SqliteLocation(tmp_path / "again.sqlite"), lines)
    with closing(SqliteJournalReader(tmp_path / "again.sqlite")) as reader:
        (record,) = reader.read(0).records
        assert record.frame.bodies() == bodies
        assert (list(record.frame.ids), record.frame.types, record.source) == (ids, ("a",), "trainer@a")
        assert record.frame.subjects == (subject,)
