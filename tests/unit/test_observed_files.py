"""Files of another program are followed: nothing is lost or read twice, and bad parts cost only themselves."""

import csv
import errno
import io
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from torch.utils.tensorboard import SummaryWriter

from flyball.app.observing.event_files import LARGEST_EVENT_BYTES, EventFile
from flyball.app.observing.following import (
    LONGEST_LINE_BYTES,
    PIECE_BYTES,
    FollowedFile,
    JsonFile,
    Problem,
    ReadItem,
    Record,
    TableFile,
)

TAGS = ("loss", "entropy")
READERS = {
    "csv": lambda path: TableFile(path, ","),
    "tsv": lambda path: TableFile(path, "\t"),
    "jsonl": JsonFile,
    "tensorboard": lambda path: EventFile(path, TAGS),
}


def frame(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


def scalar(step: int, **scalars: float) -> bytes:
    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
    return frame(Event(step=step, summary=Summary(value=values)).SerializeToString())


def records(found: Sequence[ReadItem]) -> list[dict[str, object]]:
    return [dict(record.values) for record in found if isinstance(record, Record)]


def read_in_chunks(name: str, content: bytes, cuts: Sequence[int]) -> list[ReadItem]:
    with TemporaryDirectory() as folder:
        path, found = Path(folder) / "file", list[ReadItem]()
        reader: FollowedFile = READERS[name](path)
        ends = [*sorted(min(cut, len(content)) for cut in cuts), len(content)]
        for begin, end in zip([0, *ends], ends, strict=False):
            with path.open("ab") as file:
                file.write(content[begin:end])
            found += reader.read()
        return found


TABLE = b"step,model\n1,a\n1,a\n\n2,b\nstep,model\nbad\n3,c\n4"
LINES = b'{"step": 1, "m": {"loss": 0.5}}\nnull\n{"step": 2}\n\xff\n{"step": 3}\n{"st'
EVENTS = (
    frame(Event(file_version="brain.Event:2").SerializeToString())
    + scalar(1, loss=0.5)
    + scalar(1, entropy=1.0)
    + frame(b"\x00" * (LARGEST_EVENT_BYTES + 1))
    + scalar(2, loss=0.25, other=1.0)
    + scalar(3, loss=0.125, entropy=2.0)
    + scalar(4, loss=0.1)
)
CONTENTS = {"csv": TABLE, "tsv": TABLE.replace(b",", b"\t"), "jsonl": LINES, "tensorboard": EVENTS}


@pytest.mark.parametrize("name", READERS)
@given(content=st.binary(max_size=2000), cuts=st.lists(st.integers(0, 2000), max_size=4))
def test_arbitrary_bytes_never_stop_a_reader(name: str, content: bytes, cuts: list[int]) -> None:
    whole = read_in_chunks(name, content, ())
    assert read_in_chunks(name, content, cuts) == whole
    assert all(isinstance(found, Record | Problem) for found in whole)


@pytest.mark.parametrize("name", READERS)
@given(cuts=st.lists(st.integers(0, len(EVENTS)), max_size=6))
def test_appended_chunks_equal_one_write(name: str, cuts: list[int]) -> None:
    assert read_in_chunks(name, CONTENTS[name], cuts) == read_in_chunks(name, CONTENTS[name], ())


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=20), min_size=2))
def test_table_reads_back_what_csv_wrote(cells: list[str]) -> None:
    columns, written = [str(number) for number in range(len(cells))], io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([columns, cells])
    found = read_in_chunks("csv", written.getvalue().encode(), ())
    problems = [record for record in found if isinstance(record, Problem)]
    assert problems or records(found) in ([], [dict(zip(columns, map(str.strip, cells), strict=True))])


def test_bad_line_costs_itself_and_names_its_line() -> None:
    found = read_in_chunks("csv", TABLE, ())
    assert records(found) == [{"step": step, "model": model} for step, model in ("1a", "1a", "2b", "3c")]
    (problem,) = (record for record in found if isinstance(record, Problem))
    assert problem == Problem("line 7", "it has 1 values for the 2 columns of the first line")


def test_json_values_within_others_have_dotted_names() -> None:
    found = read_in_chunks("jsonl", LINES, ())
    assert records(found) == [{"step": 1, "m.loss": 0.5}, {"step": 2}, {"step": 3}]
    assert [record.place for record in found if isinstance(record, Problem)] == ["line 2", "line 4"]


def test_line_too_long_is_skipped_to_its_end() -> None:
    content = b'{"a": 1}\n' + b"x" * (2 * LONGEST_LINE_BYTES + 10) + b'\n{"a": 2}\n'
    for cuts in ((), (100, LONGEST_LINE_BYTES + 5, 2 * LONGEST_LINE_BYTES)):
        found = read_in_chunks("jsonl", content, cuts)
        assert records(found) == [{"a": 1}, {"a": 2}]
        assert [record.place for record in found] == ["line 1", "line 2", "line 3"]


def test_step_waits_for_its_tags_or_for_the_next_step() -> None:
    assert records(read_in_chunks("tensorboard", EVENTS, ())) == [
        {"step": 1, "loss": 0.5, "entropy": 1.0},
        {"step": 2, "loss": 0.25},
        {"step": 3, "loss": 0.125, "entropy": 2.0},
    ]


def test_damaged_event_file_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(scalar(1, loss=1, entropy=1) + b"\x01" * 40)
    reader = EventFile(path, TAGS)
    assert [type(found) for found in reader.read()] == [Record, Problem]
    path.write_bytes(path.read_bytes() + scalar(2, loss=1, entropy=1))
    assert list(reader.read()) == []


@pytest.mark.parametrize("zeros", [12, 40, 5000])
def test_zeros_in_an_event_file_wait_for_content(zeros: int, tmp_path: Path) -> None:
    """A crash leaves zeros at the end; a network file system may show them before it has what was written."""
    path, begin = tmp_path / "events", scalar(1, loss=1, entropy=1)
    path.write_bytes(begin + bytes(zeros))
    reader = EventFile(path, TAGS)
    record, problem = reader.read()
    assert isinstance(record, Record)
    assert (problem.place, problem.what[:14]) == (f"byte {len(begin)}", "zeros are here")
    path.write_bytes(begin + bytes(zeros + 100))
    assert list(reader.read()) == [], "it is reported once"
    path.write_bytes(begin + scalar(2, loss=0.5, entropy=1) + bytes(zeros))
    assert records([*reader.read()][:1]) == [{"step": 2, "loss": 0.5, "entropy": 1.0}]


def test_event_whose_data_comes_late_is_read(tmp_path: Path) -> None:
    """A network file system shows the length of a record before its data."""
    path, begin, late = tmp_path / "events", scalar(1, loss=1, entropy=1), scalar(2, loss=0.5, entropy=1)
    path.write_bytes(begin + late[:20] + bytes(len(late) - 20 + 500))
    reader = EventFile(path, TAGS)
    assert [type(found) for found in reader.read()] == [Record, Problem, Problem]
    path.write_bytes(begin + late)
    assert records(list(reader.read())) == [{"step": 2, "loss": 0.5, "entropy": 1.0}]


def test_damaged_event_costs_itself() -> None:
    bad = bytearray(scalar(2, loss=1, entropy=1))
    bad[20] ^= 1
    found = read_in_chunks("tensorboard", scalar(1, loss=1, entropy=1) + bytes(bad) + scalar(3, loss=1, entropy=1), ())
    assert [type(record) for record in found] == [Record, Problem, Record]


def test_event_file_of_summary_writer_is_read(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_text("note", "hello", 1)
        for step in range(3):
            writer.add_scalar("loss", step / 2, step)
            writer.add_scalar("entropy", 1.0, step)
    (path,) = tmp_path.iterdir()
    assert records(list(EventFile(path, TAGS).read())) == [
        {"step": step, "loss": step / 2, "entropy": 1.0} for step in range(3)
    ]


@pytest.mark.parametrize("name", READERS)
def test_rewritten_file_gives_only_what_is_new(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    reader: FollowedFile = READERS[name](path)
    path.write_bytes(CONTENTS[name])
    before = [found.key for found in reader.read() if isinstance(found, Record)]
    assert len(set(before)) == len(before)
    for content in (b"", CONTENTS[name], b"", CONTENTS[name]):
        path.write_bytes(content)
        assert [found for found in reader.read() if isinstance(found, Record)] == []
    again: FollowedFile = READERS[name](path)
    assert [found.key for found in again.read() if isinstance(found, Record)] == before, "after a restart"


@pytest.mark.parametrize("name", ["csv", "jsonl", "tensorboard"])
def test_file_longer_than_a_piece_is_read_to_its_end(name: str, tmp_path: Path) -> None:
    write = {
        "csv": lambda step: f"{step},{'x' * 500}\n".encode(),
        "jsonl": lambda step: json.dumps({"step": step, "text": "x" * 500}).encode() + b"\n",
        "tensorboard": lambda step: frame(b"\x00" * 500) + scalar(step, loss=1.0, entropy=1.0),
    }[name]
    path, header = tmp_path / "file", b"step,text\n" if name == "csv" else b""
    path.write_bytes(header + b"".join(map(write, range(1000))))
    assert path.stat().st_size > 4 * PIECE_BYTES
    assert [int(values["step"]) for values in records(list(READERS[name](path).read()))] == [*range(1000)]


def test_records_before_a_read_error_are_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [b'{"step": %d}\n' % step for step in range(3)]

    class FailingDisk(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            if self.tell() >= 2 * len(lines[0]):
                raise OSError(errno.EIO, "Input/output error")
            return super().readline(size)

    path = tmp_path / "file"
    path.write_bytes(b"".join(lines))
    reader = JsonFile(path)
    with monkeypatch.context() as failing:
        failing.setattr(Path, "open", lambda _path, _mode: FailingDisk(b"".join(lines)))
        *before, problem = reader.read()
    assert records(before) == [{"step": 0}, {"step": 1}]
    assert problem == Problem("the file", "it cannot be read: Input/output error")
    assert records(list(reader.read())) == [{"step": 2}], "once the disk is back"


def test_unwanted_records_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"".join(b'{"step": %d}\n' % (step // 2) for step in range(8)))
    found = list(JsonFile(path, lambda values: values["step"] == 2).read())
    assert [(record.place, record.values["step"], record.key[-2:]) for record in found] == [
        ("line 5", 2, ".1"),
        ("line 6", 2, ".2"),
    ]


def test_file_without_its_first_lines_has_no_new_keys(tmp_path: Path) -> None:
    path = tmp_path / "file"
    lines = [json.dumps({"step": step // 2}) for step in range(20)]
    path.write_text("\n".join(lines) + "\n")
    reader = JsonFile(path)
    before = {found.key for found in reader.read() if isinstance(found, Record)}
    path.write_text("\n".join([*lines[7:], '{"step": 99}']) + "\n")
    new = [found for found in reader.read() if isinstance(found, Record) and found.key not in before]
    assert records(new) == [{"step": 99}]


def test_missing_file_waits_and_unreadable_one_is_reported(tmp_path: Path) -> None:
    assert list(JsonFile(tmp_path / "none").read()) == []
    reader = JsonFile(tmp_path)
    assert [type(found) for found in reader.read()] == [Problem]
    assert list(reader.read()) == []
