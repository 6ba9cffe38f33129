"""A running Flyball, started as users start it, for the tests."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from flyball.app.api.runs import RunLocation
from flyball.app.config import RunFolder
from flyball.app.events import DaemonReady, DaemonStarted, Event, ModelPromoted, Payload, PromotionRejected
from flyball.app.journal import history
from flyball.app.journal.database import StorageError
from flyball.daemons import monitoring
from flyball.daemons.registry import DAEMONS

PATIENCE_SECONDS = 400.0
"""Longest wait, for busy machines; the tests' own limit ends what hangs."""

SETTINGS = """
seed = 7
configs = ["tic_tac_toe_2p"]
tick_seconds = 1.0
[deployment]
heartbeat_seconds = 1.0
drain_seconds = 3.0
[games.tic_tac_toe_2p]
rows_per_training = 256
[games.tic_tac_toe_2p.selfplay]
games_per_request = 64
[games.tic_tac_toe_2p.evaluation]
random_games = 40
model_games = 20
"""

BRISK = (
    SETTINGS
    + """
anchor_games = 20
[feedback.lifecycle]
elo0 = -200.0
max_games = 100
"""
)
"""Settings whose loops close in seconds: gates let in models that are not much worse, which takes tens of games."""

STARTED = tuple(name for name in DAEMONS if name != monitoring.DAEMON.name)
"""The daemons of ``flyball up``; the settings of these loops ask for no monitoring."""

FLYBALL = str(Path(sys.executable).with_name("flyball"))
EXAMPLES = Path(__file__).parents[1] / "examples"


def flyball(folder: Path, *words: str, code: int | None = 0) -> str:
    """Run a command on a run folder, as a process. Check its exit code if one is given; return its stdout."""
    done = subprocess.run([FLYBALL, "--run", folder, *words], capture_output=True, text=True, check=False)
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done.stdout


class RunningLoop:
    """A process of ``flyball up`` with its own run folder."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder, self.process = folder, process
        self._location = RunLocation(RunFolder(folder), None)

    def events(self, *types: type[Payload], after: int = 0) -> list[Event[Any]]:
        """Return the journal's events, only those of ``types`` if there are any."""
        try:
            with closing(self._location.journal.reader()) as journal:
                return list(history(journal, after=after, types=types or None))
        except StorageError:
            return []  # the journal does not exist yet

    def wait_for(self, what: str, reached: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        """Wait until ``reached()`` is true, and return it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"flyball up ended with {self.process.returncode}"
            if found := reached():
                return found
            time.sleep(0.3)  # because each check reads the journal, on the cores that the loop needs
        raise AssertionError(f"{what}: not within {seconds} s. {self.logs()}")

    def loops(self, after: int = 0) -> list[Event[Any]]:
        """Return the verdicts on trained models: each closes a loop."""
        verdicts = self.events(ModelPromoted, PromotionRejected, after=after)
        return [event for event in verdicts if event.data.step > 0]

    def wait_for_loops(self, count: int, after: int = 0, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until ``count`` loops have closed after a position."""
        self.wait_for(f"{count} loops", lambda: len(self.loops(after)) >= count, seconds)

    def pid_of(self, daemon: str) -> int:
        """Return the process of a daemon's latest start."""
        return [e for e in self.events(DaemonStarted) if e.data.daemon == daemon][-1].data.pid

    def ready(self, daemon: str, after: int = 0) -> bool:
        """Return whether a daemon has become ready after a position."""
        return any(e.data.daemon == daemon for e in self.events(DaemonReady, after=after))

    def head(self) -> int:
        """Return the position of the last event."""
        with closing(self._location.journal.reader()) as journal:
            return journal.head

    def leave(self) -> int:
        """Stop Flyball as Ctrl-C would; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=90)
            finally:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def logs(self) -> str:
        """Return the ends of all logs, for a failure's message."""
        ends = [f"--- {path.name}\n{path.read_text()[-800:]}" for path in sorted((self.folder / "logs").glob("*"))]
        return "\n".join(ends)


def copied_example(name: str, folder: Path) -> str:
    """Copy an example into a new run folder; return its settings. A user copies it the same way."""
    folder.mkdir()
    shutil.copy(EXAMPLES / f"{name}.py", folder)
    return (EXAMPLES / f"{name}.toml").read_text(encoding="utf-8")


@contextmanager
def running_loop(
    folder: Path,
    settings: str = SETTINGS,
    cwd: Path | None = None,
    *,
    dashboard: bool = False,
    options: tuple[str, ...] = (),
) -> Iterator[RunningLoop]:
    """Start ``flyball up``, and stop it as Ctrl-C would.

    It starts in the working directory ``cwd``, if there is one, and prints into ``up.out`` of the run folder.
    """
    started = {"START": json.dumps(dashboard), "PORT": "0"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "flyball.toml").write_text(settings)
    with (folder / "up.out").open("wb") as output:
        process = subprocess.Popen(
            [FLYBALL, "up", "--run", str(folder), *options],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "NO_COLOR": "1",
                **{f"FLYBALL_DEPLOYMENT__DASHBOARD__{k}": v for k, v in started.items()},
            },
        )
        loop = RunningLoop(folder, process)
        try:
            yield loop
        finally:
            loop.leave()
