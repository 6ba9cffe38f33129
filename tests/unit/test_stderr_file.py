"""The bounded file of a supervised process's stderr."""

import os
import subprocess
import sys
from pathlib import Path

from daemons.supervisor import StderrFile


def write(file: StderrFile, text: str) -> None:
    with file.open() as stderr:
        os.write(stderr.fileno(), text.encode())


def test_the_last_line_is_that_of_the_latest_process(tmp_path: Path) -> None:
    file = StderrFile(tmp_path / "logs" / "x.stderr")
    write(file, "first\nsecond\n\n")
    assert file.last_line() == "second"
    write(file, "")
    assert file.last_line() == ""


def test_long_file_is_emptied_at_a_start_and_its_end_kept(tmp_path: Path) -> None:
    file = StderrFile(tmp_path / "x.stderr", max_bytes=10)
    for text in ("one long line\n", "two long lines\n", "end\n"):
        write(file, text)
    assert (tmp_path / "x.stderr").read_text() == "end\n"
    assert (tmp_path / "x.stderr.1").read_text() == "ong lines\n"
    assert file.last_line() == "end"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.stderr", "x.stderr.1"]


def test_a_running_process_writes_on_where_the_file_was_emptied(tmp_path: Path) -> None:
    file = StderrFile(tmp_path / "x.stderr", max_bytes=10)
    program = "import os, sys\nfor line in sys.stdin.buffer: os.write(2, line); print(flush=True)"
    with (
        file.open() as stderr,
        subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        for line in ("a line that is long\n", "another that is\n", "last\n"):
            process.stdin.write(line)
            process.stdin.flush()
            process.stdout.readline()
            file.bound()
        process.stdin.close()
    assert (tmp_path / "x.stderr").read_text() == "last\n"
    assert file.last_line() == "last"
