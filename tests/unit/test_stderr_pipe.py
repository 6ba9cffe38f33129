"""The log file of a supervised process's stderr."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.telemetry import LogFile
from daemons.supervisor import PIPE_BYTES, StderrPipe


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
