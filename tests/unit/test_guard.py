"""Commands under a guard: their output, and when they have ended."""

import os
import signal
import sys
from pathlib import Path

import pytest

from flyball.app.engine import guard
from flyball.app.engine.guard import CommandEnd, command_environment, run_guarded


def run(program: str, folder: Path) -> tuple[list[str], CommandEnd]:
    lines = list[str]()
    ended = run_guarded((sys.executable, "-c", program), str(folder), command_environment(), lines.append)
    return lines, ended


def test_lines_of_a_command_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, ended = run("print('one\\r\\n\\ntwo' + 'x' * 100_000); print('end', end='')", tmp_path)
    assert (lines[:2], "".join(lines[2:])) == (["one", ""], "two" + "x" * 100_000 + "end")
    assert ended == CommandEnd(0, "", "")
    monkeypatch.setattr(guard, "_LINE", 1000)
    lines, _ = run("print('x' * 100_000)", tmp_path)
    assert "".join(lines) == "x" * 100_000
    assert max(map(len, lines)) < 2000, "a long line is read in parts"


def test_command_ends_at_once_if_a_child_has_left_it(tmp_path: Path) -> None:
    """The child holds stdout and stderr open."""
    leaves = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    (child,), ended = run(leaves, tmp_path)
    assert ended == CommandEnd(0, "", "")
    os.kill(int(child), signal.SIGKILL)  # which still runs
