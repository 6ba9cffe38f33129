"""Log files: lines of OpenTelemetry shape, rotation, and the stderr of supervised processes."""

import asyncio
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import structlog

from flyball.app.telemetry import LogFile, configure
from flyball.daemons.supervisor import PIPE_BYTES, StderrPipe

SCHEMA = {
    "type": "object",
    "required": ["timestamp", "severity_text", "severity_number", "body", "attributes"],
    "additionalProperties": False,
    "properties": {
        "timestamp": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"},
        "severity_text": {"enum": ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]},
        "severity_number": {"type": "integer", "minimum": 1, "maximum": 24},
        "event_name": {"type": "string"},
        "body": {"type": ["string", "null"]},
        "trace_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "span_id": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
        "trace_flags": {"type": "string", "pattern": "^[0-9a-f]{2}$"},
        "scope": {"type": "object", "required": ["name"]},
        "attributes": {
            "type": "object",
            "required": ["daemon", "node"],
            "properties": {"daemon": {"type": "string"}, "node": {"type": "string"}},
        },
    },
}
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Log:
    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[dict[str, Any]]:
        records = [json.loads(line) for line in self.path.read_text().split("\n") if line]
        for record in records:
            jsonschema.validate(record, SCHEMA)
        return records


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with configure("training", "gpu1", tmp_path / "logs" / "training.jsonl", "INFO"):
        yield Log(tmp_path / "logs" / "training.jsonl")


def test_a_decision_is_found_by_its_attributes(log: Log) -> None:
    about = {"event_id": "a1", "causation_id": "b2", "config_key": "hearts_4p", "sequence": 17, "data": {"step": 3}}
    structlog.get_logger("host").info("MODEL_PROMOTED", event_name="flyball.model.promoted", **about)
    (line,) = log.lines()
    assert (line["body"], line["event_name"]) == ("MODEL_PROMOTED", "flyball.model.promoted")
    assert (line["scope"], line["severity_text"], line["severity_number"]) == ({"name": "host"}, "INFO", 9)
    assert line["attributes"] == {"daemon": "training", "node": "gpu1", **about}


def test_lines_below_the_level_are_left_out(log: Log) -> None:
    logger = structlog.get_logger()
    logger.debug("quiet")
    logger.warning("loud")
    assert [line["severity_number"] for line in log.lines()] == [13]


def test_a_bound_traceparent_gives_the_ids(log: Log) -> None:
    with structlog.contextvars.bound_contextvars(traceparent=TRACEPARENT):
        structlog.get_logger().info("in")
    structlog.get_logger().info("out")
    inside, outside = log.lines()
    assert (inside["trace_id"], inside["span_id"]) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert "trace_id" not in outside


def test_whatever_is_logged_stays_one_valid_line(log: Log) -> None:
    structlog.get_logger().info("two\nlines \u2028", number=float("nan"), thing=object(), path=Path("/x"), none=None)
    structlog.get_logger().info("half a character \ud800", raw=b"\xff", number=1)
    whole, odd = log.lines()
    assert whole["body"] == "two\nlines \u2028"
    assert (whole["attributes"]["number"], whole["attributes"]["path"]) == (None, "/x")
    assert "none" not in whole["attributes"]
    assert odd["attributes"]["raw"] == repr(b"\xff")


def test_exceptions_follow_the_conventions(log: Log) -> None:
    try:
        int("boom")
    except ValueError as error:
        structlog.get_logger().error("failed", exc_info=error)
        structlog.get_logger().error("failed", exc_info=True)
    for line in log.lines():
        assert line["attributes"]["exception.type"] == "ValueError"
        assert line["attributes"]["exception.message"].endswith("'boom'")
        assert "test_exceptions_follow" in line["attributes"]["exception.stacktrace"]


def test_logs_of_the_standard_library_arrive(log: Log) -> None:
    logging.getLogger("library").error("at %s", "work")
    logging.getLogger("library").log(35, "between levels")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("careful", stacklevel=1)
    error, odd, warning = log.lines()
    assert (error["body"], error["severity_text"], error["scope"]) == ("at work", "ERROR", {"name": "library"})
    assert (odd["body"], odd["severity_text"]) == ("between levels", "WARNING")
    assert "careful" in warning["body"]


async def test_errors_that_asyncio_reports_arrive(log: Log) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": "lost task", "exception": RuntimeError("why")})
    (line,) = log.lines()
    assert "lost task" in line["body"]
    assert line["attributes"]["exception.type"] == "RuntimeError"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_human_at_the_terminal_reads_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("NO_COLOR", no_color)
    with configure("training", "gpu1", tmp_path / "log.jsonl"):
        structlog.get_logger("host").info("MODEL_PROMOTED", config_key="hearts_4p")
    assert "MODEL_PROMOTED" in terminal.getvalue()
    assert ("\x1b[" in terminal.getvalue()) is coloured
    assert "level" not in json.loads((tmp_path / "log.jsonl").read_text())["attributes"]


def test_errors_are_told_to_whoever_keeps_stderr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = StringIO()
    monkeypatch.setattr("sys.stderr", kept)
    with configure("training", "gpu1", tmp_path / "log.jsonl"):
        logger = structlog.get_logger()
        logger.info("fine")
        logger.error("daemon failed", error="no room")
        logger.error("daemon failed", exc_info=ExceptionGroup("two", [ValueError("a"), KeyError("b")]))
    assert kept.getvalue() == "daemon failed: no room\ndaemon failed: ValueError: a; KeyError: 'b'\n"


def test_a_full_disk_ends_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    with LogFile(Path("/dev/full")) as sink:
        sink.write(b"one")
        sink.write(b"two")
    assert capsys.readouterr().err.count("log lines are being lost") == 1


def texts(folder: Path) -> dict[str, list[str]]:
    return {path.name: path.read_text().splitlines() for path in folder.iterdir()}


def test_the_last_files_are_kept_and_none_outgrows_its_size(tmp_path: Path) -> None:
    with LogFile(tmp_path / "log", max_bytes=40, files=3) as sink:
        for number in range(20):
            sink.write(b"line %04d" % number)
    assert texts(tmp_path) == {
        "log": ["line 0016", "line 0017", "line 0018", "line 0019"],
        "log.1": ["line 0012", "line 0013", "line 0014", "line 0015"],
        "log.2": ["line 0008", "line 0009", "line 0010", "line 0011"],
    }


def test_writers_of_one_file_lose_no_line_in_its_rotation(tmp_path: Path) -> None:
    """A daemon and its successor may share a file, for example."""

    def write(name: str) -> None:
        with LogFile(tmp_path / "log", max_bytes=1000, files=500) as sink:
            for number in range(1000):
                sink.write(f"{name} {number:04d}".encode())

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, "abc"))
    lines = [line for name in texts(tmp_path).values() for line in name]
    assert sorted(lines) == [f"{name} {number:04d}" for name in "abc" for number in range(1000)]
    assert max(path.stat().st_size for path in tmp_path.iterdir()) <= 1000 + 3 * 7


def test_moved_or_removed_files_and_folders_are_followed(tmp_path: Path) -> None:
    with LogFile(tmp_path / "log") as sink:
        sink.write(b"one")
        (tmp_path / "log").rename(tmp_path / "old")
        sink.write(b"two")
    assert texts(tmp_path) == {"old": ["one"], "log": ["two"]}
    with LogFile(tmp_path / "logs" / "log") as sink:
        sink.write(b"one")
        (tmp_path / "logs" / "log").unlink()
        (tmp_path / "logs").rmdir()
        sink.write(b"two")
    assert texts(tmp_path / "logs") == {"log": ["two"]}
    (tmp_path / "run").mkdir()
    with LogFile(tmp_path / "run" / "logs" / "log") as sink:
        sink.write(b"one")
        (tmp_path / "run").rename(tmp_path / "moved")
        sink.write(b"two")
    assert texts(tmp_path / "moved" / "logs") == {"log": ["one", "two"]}
    assert not (tmp_path / "run").exists()


def test_a_file_that_cannot_be_rotated_grows(tmp_path: Path) -> None:
    (tmp_path / "log.1" / "in the way").mkdir(parents=True)
    with LogFile(tmp_path / "log", max_bytes=1, files=2) as one, LogFile(tmp_path / "log", max_bytes=1, files=2) as two:
        for sink in (one, two, one):
            sink.write(b"line")
    assert (tmp_path / "log").read_text() == "line\n" * 3


async def written(file: LogFile, *texts: str) -> str:
    pipe = StderrPipe(file)
    for text in texts:
        os.write(pipe.writer, text.encode())
        await asyncio.sleep(0.01)
    os.close(pipe.writer)
    return pipe.close()


async def test_last_line_is_whole_and_of_the_latest_process(tmp_path: Path) -> None:
    with LogFile(tmp_path / "logs" / "x.stderr") as file:
        assert await written(file, "first\nsecond\n\n") == "second"
        assert await written(file) == ""
    assert (tmp_path / "logs" / "x.stderr").read_text() == "first\nsecond\n\n"
    with LogFile(tmp_path / "x.stderr") as file:
        assert await written(file, "one ", "line\nand ", "its end") == "and its end"
    assert (tmp_path / "x.stderr").read_text() == "one line\nand its end\n"


async def test_stderr_without_line_ends_fills_no_memory(tmp_path: Path) -> None:
    with LogFile(tmp_path / "x.stderr") as file:
        last = await written(file, *("a" * (PIPE_BYTES // 2),) * 5)
    assert [len(line) for line in (tmp_path / "x.stderr").read_text().splitlines()] == [
        PIPE_BYTES,
        PIPE_BYTES,
        PIPE_BYTES // 2,
    ]
    assert len(last) < PIPE_BYTES


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


MOVED = "x.stderr-moved"


@pytest.mark.parametrize(
    ("accident", "left"),
    [
        (Path.unlink, {"x.stderr": "two\n"}),
        (lambda path: path.rename(path.with_name(MOVED)), {"x.stderr": "two\n", MOVED: "one\n"}),
        (lambda path: os.truncate(path, 0), {"x.stderr": "two\n"}),
    ],
    ids=["removed", "renamed", "truncated"],
)
async def test_stderr_goes_on_in_a_new_file(tmp_path: Path, accident: Callable, left: dict[str, str]) -> None:
    with LogFile(tmp_path / "x.stderr") as file:
        pipe = StderrPipe(file)
        os.write(pipe.writer, b"one\n")
        await asyncio.sleep(0.01)
        accident(tmp_path / "x.stderr")
        os.write(pipe.writer, b"two\n")
        os.close(pipe.writer)
        assert pipe.close() == "two"
    assert files(tmp_path) == left
