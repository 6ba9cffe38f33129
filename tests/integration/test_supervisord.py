"""A real supervisord: restart rules, crash loops and an orderly end. Its files are those of deploy/supervisor."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from flyball.app.events import DaemonReady, DaemonStarted, DaemonStopped
from flyball.app.journal import SqliteJournalReader, history
from flyball.app.journal.database import StorageError
from flyball.daemons.registry import names_of

pytest.importorskip("supervisor")

DEPLOY = Path(__file__).parents[2] / "deploy" / "supervisor"
BIN = Path(sys.executable).parent
SECONDS = 200
FAILING = """#!/bin/sh
case "$3" in
  feedback) exit 1 ;;
  curves) exit 2 ;;
  training_trigger) kill -9 $$ ;;
esac
exec sleep 1000
"""
"""A ``flyball`` whose daemons fail in several ways."""


class Supervisord:
    """A running supervisord; ``run`` is the run folder."""

    def __init__(self, run: Path, config: Path, environment: dict[str, str]) -> None:
        self.run, self._config, self._environment = run, config, environment
        command = (sys.executable, "-W", "ignore", "-m", "supervisor.supervisord", "-n", "-c", str(config))
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)

    def states(self) -> dict[str, str]:
        """Return the state of each program, by name."""
        command = (sys.executable, "-W", "ignore", "-m", "supervisor.supervisorctl", "-c", str(self._config), "status")
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        lines = (line.split() for line in done.stdout.splitlines())
        return {words[0].rpartition(":")[2]: words[1] for words in lines if len(words) > 1}

    def log(self, name: str) -> str:
        """Return a log file's text."""
        path = self.run / "logs" / name
        return path.read_text() if path.exists() else ""

    def events(self, *types: type) -> list:
        """Return recorded events of these types."""
        try:
            with closing(SqliteJournalReader(self.run / "journal.sqlite")) as reader:
                return list(history(reader, types=types))
        except StorageError:
            return []  # not there yet


@contextmanager
def supervisord(folder: Path, config: str) -> Iterator[Supervisord]:
    """Start supervisord with a configuration, and stop it in the end. It is stopped as by an operator."""
    run, file = folder / "run", folder / "supervisord.conf"
    (run / "logs").mkdir(parents=True, exist_ok=True)
    file.write_text(config.replace("%(here)s", str(DEPLOY)))
    environment = os.environ | {"FLYBALL_RUN": str(run), "PATH": f"{folder / 'bin'}:{BIN}:{os.environ['PATH']}"}
    environment["FLYBALL_DEPLOYMENT__DASHBOARD__PORT"] = "0"  # other tests may have the usual one
    running = Supervisord(run, file, environment)
    try:
        yield running
    finally:
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(timeout=90)


def until(condition, what: str) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.mark.timeout(400)
def test_crash_loops_are_reported_and_stopped(tmp_path: Path) -> None:
    program(tmp_path / "bin", "flyball", FAILING)
    ctl = f'#!/bin/sh\nexec "{sys.executable}" -W ignore -m supervisor.supervisorctl "$@"\n'
    program(tmp_path / "bin", "supervisorctl", ctl)
    config = (DEPLOY / "head.conf").read_text()
    with supervisord(tmp_path, config.replace("--failures 5", "--failures 3 --stop")) as running:
        report = "crash_loops-head.log"
        until(lambda: running.log(report).count("CRASH LOOP") >= 2, "crash loops reported")
        until(lambda: running.states().get("feedback") == "STOPPED", "feedback stopped")
        assert "CRASH LOOP: head:feedback fails again and again" in running.log(report)
        assert "CRASH LOOP: head:training_trigger" in running.log(report), "killed by a signal"
        assert "head:curves ENDED FOR GOOD" in running.log(report)
        states = running.states()
        assert states["curves"] == "EXITED"
        assert {states[name] for name in ("broker", "selfplay_scheduler", "model_lifecycle")} == {"RUNNING"}


@pytest.mark.timeout(600)
def test_supervisord_runs_a_head_and_ends_it_in_order(tmp_path: Path) -> None:
    with supervisord(tmp_path, (DEPLOY / "head.conf").read_text()) as running:
        names = set(names_of("head"))
        until(lambda: {event.data.daemon for event in running.events(DaemonReady)} == names, "all ready")
        assert set(running.states().values()) == {"RUNNING"}
        (feedback,) = (e.data.pid for e in running.events(DaemonStarted) if e.data.daemon == "feedback")
        os.kill(feedback, signal.SIGKILL)
        until(lambda: [e.data.daemon for e in running.events(DaemonReady)].count("feedback") == 2, "restarted")
    ended = re.findall(r"stopped: (\w+) \(exit status 0\)", running.log("supervisord-head.log"))
    assert set(ended) == names | {"dashboard"}
    assert ended[-1] == "broker"
    assert running.events(DaemonStopped)[-1].data.daemon == "broker"
