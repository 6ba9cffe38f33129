"""No file that an operator or a cleaner touches ends a run.

The journal's own files are another matter: see the tests of the broker. The last accident is the loss of the run's
whole folder.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
from running_loop import BRISK, FLYBALL, RunningLoop, running_loop

from flyball.app.config import RunFolder
from flyball.daemons.run_folder import is_held

pytestmark = pytest.mark.timeout(900)

SPARED = ("journal.sqlite*", "bus.sock", "flyball.toml", "up.out", "store/**/*", "archive/**/*")
"""The journal, the broker's socket, what a user wrote, and the models and shards that the journal names."""


def touchable(folder: Path, pattern: str) -> list[Path]:
    spared = {path for spared in SPARED for path in folder.glob(spared)}
    return [path for path in sorted(folder.glob(pattern)) if path.is_file() and path not in spared]


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def rename(path: Path) -> None:
    if path.exists():
        path.rename(path.with_name(f"{path.name}.rotated"))


def truncate(path: Path) -> None:
    if path.exists():
        os.truncate(path, 0)


def kill(loop: RunningLoop, daemon: str) -> None:
    """Kill a daemon, unless the loss of its files has ended it already."""
    with suppress(ProcessLookupError):
        os.kill(loop.pid_of(daemon), signal.SIGKILL)


def logged(path: Path) -> list[dict]:
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except FileNotFoundError:
        return []


def expect_logs(loop: RunningLoop, spoilt: list[Path]) -> None:
    """Logs are written again under their names."""
    busy = {"selfplay_scheduler", "training_trigger", "supervisor"}
    for path in spoilt:
        if path.suffix == ".jsonl" and path.stem in busy:
            # A killed daemon gives the supervisor something to say. The known process may be gone already.
            loop.wait_for(f"{path.name} again", lambda path=path: logged(path) or kill(loop, "curves"))


def expect_stderr(loop: RunningLoop, spoilt: list[Path]) -> None:
    """A daemon's stderr goes to the file of the name."""
    path = loop.folder / "logs" / "feedback.stderr"
    assert path in spoilt

    def written() -> bool:
        with suppress(FileNotFoundError), Path(f"/proc/{loop.pid_of('feedback')}/fd/2").open("w") as stderr:
            stderr.write("last words\n")
        return path.exists() and "last words\n" in path.read_text()

    loop.wait_for("last words", written)


def expect_lock(loop: RunningLoop, spoilt: list[Path]) -> None:
    """The run still holds its folder."""
    assert loop.folder / "up.lock" in spoilt
    loop.wait_for("the lock", lambda: is_held(RunFolder(loop.folder)))


def expect_daemons(loop: RunningLoop, spoilt: list[Path]) -> None:
    """Daemons go on, or rebuild their state from the journal."""
    assert {path.parent.name for path in spoilt} == {"state", "outbox"}
    before = loop.head()
    for daemon in ("training_trigger", "model_lifecycle"):
        kill(loop, daemon)
        loop.wait_for(f"{daemon} ready", lambda daemon=daemon: loop.ready(daemon, before))


def expect_nothing(loop: RunningLoop, spoilt: list[Path]) -> None:
    """The tests of curves say where later points go."""


EXPECTED: dict[str, Callable[[RunningLoop, list[Path]], None]] = {
    "logs/*.jsonl": expect_logs,
    "logs/*.stderr": expect_stderr,
    "*.lock": expect_lock,
    "[so][tu]*/*.sqlite*": expect_daemons,
    "curves/**/*": expect_nothing,
}
"""Checks of what has to happen after the loss of files, by pattern."""


@pytest.fixture
def _under_nohup() -> Iterator[None]:
    """Let started processes ignore the end of their terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_under_nohup")
def test_no_lost_file_ends_a_run_but_a_lost_folder_stops_it(tmp_path: Path) -> None:
    with running_loop(tmp_path / "run", BRISK, dashboard=True) as loop:
        loop.wait_for_loops(1)
        follow = [FLYBALL, "--run", str(loop.folder), "tail", "-f", "-n", "0", "--json"]
        with (
            subprocess.Popen(follow, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as tail,
            ExitStack() as stack,
        ):
            stack.callback(tail.kill)
            for accident in (remove, rename, truncate):
                for pattern, expect in EXPECTED.items():
                    # A file that an accident took comes back with the next thing written to it.
                    spoilt = loop.wait_for(pattern, partial(touchable, loop.folder, pattern))
                    for path in spoilt:
                        accident(path)
                    expect(loop, spoilt)
            loop.process.send_signal(signal.SIGHUP)
            kill(loop, "broker")
            loop.wait_for_loops(1, after=loop.head())
            assert tail.poll() is None, "a broker that starts again ends no tail"

            loop.folder.rename(tmp_path / "moved")
            assert loop.process.wait(60) == 1
            assert tail.wait(60) == 3
            assert tail.stderr is not None
            assert "the run has ended" in tail.stderr.read()
    said = (tmp_path / "moved" / "up.out").read_text()
    assert f"The run folder {tmp_path / 'run'} was moved, deleted or replaced." in said
    assert "Traceback" not in said
    assert not (tmp_path / "run" / "journal.sqlite").exists()
