"""Commands whose streams, terminal or limits an operator has changed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_run import recording, write_journal

COMMAND = f"{sys.executable} -P -m flyball.app.cli"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_journal(tmp_path / "run" / "journal.sqlite", recording().events)
    return tmp_path / "run"


def shell(line: str, run: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell, in which ``flyball`` is the command."""
    return subprocess.run(
        ["bash", "-c", f'flyball() {{ {COMMAND} "$@"; }}; {line}'],
        capture_output=True,
        check=False,
        env={**os.environ, "FLYBALL_RUN": str(run), "NO_COLOR": "1", **environment},
    )


@pytest.mark.parametrize(("words", "code"), [("status", 3), ("--help", 0)])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_closed_streams_change_no_exit_code(run: Path, words: str, code: int, closed: str) -> None:
    done = shell(f"flyball {words} {closed}", run)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stdout + done.stderr


def test_file_opened_after_closing_is_no_stream(run: Path) -> None:
    """Close all streams of a command that opens the journal."""
    before = (run / "journal.sqlite").read_bytes()
    shell("flyball tail <&- >&- 2>&-", run)
    assert (run / "journal.sqlite").read_bytes() == before


@pytest.mark.parametrize("words", ["tail --json", "status", "--help", "--version"])
def test_full_stdout_is_one_error(run: Path, words: str) -> None:
    done = shell(f"flyball {words} >/dev/full", run)
    assert done.returncode == 1
    assert b"error: stdout cannot be written: No space left on device." in done.stderr
    assert b"Traceback" not in done.stderr


def test_deleted_working_directory_is_one_error(run: Path) -> None:
    done = shell("mkdir gone && cd gone && rmdir ../gone && FLYBALL_RUN=run flyball status", run)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.splitlines()[0] == b"error: The current folder was deleted."
    other = shell("mkdir gone && cd gone && rmdir ../gone && flyball tail", run)
    assert (other.returncode, other.stderr) == (0, b"")


@pytest.mark.parametrize("words", ["up --for 9", "daemon run broker"])
def test_low_limit_of_open_files_is_one_error(tmp_path: Path, words: str) -> None:
    done = shell(f"ulimit -n 24; flyball {words}", tmp_path / "new")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.splitlines()[0] == b"error: Only 24 files may be open at once; a run needs 256."


@pytest.mark.parametrize("charset", ["iso-8859-1", "iso-8859-15", "koi8-r"])
def test_characters_that_a_terminal_lacks_are_replaced(run: Path, charset: str) -> None:
    for words in ("status", "league", "tail"):
        done = shell(f"flyball {words}", run, PYTHONIOENCODING=charset)
        assert b"Traceback" not in done.stderr, done.stderr
        assert done.returncode == (3 if words == "status" else 0)
        done.stdout.decode(charset)
    (run / "\u7403.toml").write_text("seed = 3")
    shown = shell(f"flyball --config-file {run}/\u7403.toml config show", run, PYTHONIOENCODING=charset)
    assert shown.returncode == 0
    assert b"?.toml" in shown.stdout


def test_json_keeps_characters_that_a_terminal_lacks(run: Path) -> None:
    plain, other = (shell("flyball tail --json", run, PYTHONIOENCODING=name).stdout for name in ("utf-8", "koi8-r"))
    assert [json.loads(line) for line in other.decode("koi8-r").splitlines()] == [
        json.loads(line) for line in plain.decode().splitlines()
    ]
