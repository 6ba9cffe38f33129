"""A loop that knows nothing of Flyball is observed and advised: tests/examples/observed_loop.py, in its own process."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from running_loop import EXAMPLES, RunningLoop, flyball, running_loop

from flyball.app.events import (
    DaemonReady,
    EvaluationCompleted,
    ExplorationBoost,
    Kind,
    ModelAdvised,
    ModelPromoted,
    RegressionDetected,
    TrainingCompleted,
)

SETTINGS = "tick_seconds = 1.0\n" + (EXAMPLES / "observed_loop.toml").read_text(encoding="utf-8")
BRISK = """
[feedback.stall]
check_seconds = 1.0
window_hours = 0.004
shortest_window_seconds = 4.0
window_ratings = 10
velocity = 20000.0
precision = 50000.0
[deployment]
heartbeat_seconds = 0.5
drain_seconds = 3.0
"""
ITERATIONS, BAD_FROM, KILLS = 100, 60, 3
FACTS = (EvaluationCompleted, TrainingCompleted, ModelPromoted)


def lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def kill_observer(loop: RunningLoop) -> None:
    """Kill the observer, which its supervisor starts again."""
    head = loop.head()
    os.kill(loop.pid_of("observer"), signal.SIGKILL)
    loop.wait_for("the observer", lambda: loop.ready("observer", after=head))


@pytest.mark.timeout(600)
def test_untouched_loop_is_advised_through_kills(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    script = (sys.executable, str(EXAMPLES / "observed_loop.py"), str(runs), str(ITERATIONS), "0.3", str(BAD_FROM))
    with running_loop(tmp_path, SETTINGS + BRISK) as loop:
        loop.wait_for("the observer", lambda: loop.ready("observer"))
        with subprocess.Popen(script) as training:
            for number in range(KILLS):
                wanted = 20 * (number + 1)
                loop.wait_for("results", lambda wanted=wanted: lines(runs / "results.csv") > wanted)
                kill_observer(loop)
            assert training.wait(timeout=300) == 0
        with (runs / "results.csv").open("a") as file:
            file.write("7,no numbers,RandomPlayer,a,b,c\n101,last,RandomPlayer,1")
        results = lines(runs / "results.csv") - 3  # without the header, the bad line and the one that is not ended
        loop.wait_for("all results", lambda: len(loop.events(EvaluationCompleted)) == results)
        loop.wait_for("all trainings", lambda: len(loop.events(TrainingCompleted)) == ITERATIONS)
        loop.wait_for("the advice to roll back", lambda: advice(loop, "roll_back"))
        loop.wait_for("a boost", lambda: loop.events(ExplorationBoost))
        kill_observer(loop)
        status = json.loads(flyball(tmp_path, "status", "--json"))
        assert status["advises"]
        assert {daemon["daemon"] for daemon in status["daemons"] if daemon["state"] == "ready"} >= {
            "observer",
            "feedback",
        }
        for command in ("status", "report"):
            assert "Advises only" in flyball(tmp_path, command)
        assert "MODEL_ADVISED" in flyball(tmp_path, "controllers", "hill_2p")
        assert loop.leave() == 0
    log = (tmp_path / "logs" / "observer.jsonl").read_text(encoding="utf-8")
    assert "wins ('a' in won)" in log
    assert (tmp_path / "up.out").read_text(encoding="utf-8").startswith("Advises only")
    check_once(loop, results, lines(runs / "best.jsonl"))
    with running_loop(tmp_path, SETTINGS + BRISK) as loop:  # all files are read again
        head = loop.head()
        loop.wait_for("the observer", lambda: loop.ready("observer", after=head))
        flyball(tmp_path, "status")
        check_once(loop, results, lines(runs / "best.jsonl"))
        assert loop.leave() == 0
    assert "different                            0" in flyball(tmp_path, "replay", "--check")


def advice(loop: RunningLoop, kind: str) -> list[ModelAdvised]:
    return [event.data for event in loop.events(ModelAdvised) if event.data.advice == kind]


def check_once(loop: RunningLoop, results: int, promotions: int) -> None:
    """Check that each record is published once, and that nothing was asked of anybody."""
    counts = [len(loop.events(kind)) for kind in FACTS]
    assert counts == [results, ITERATIONS, promotions]
    for kind in FACTS[:2]:
        assert max(Counter(event.data.request_id for event in loop.events(kind)).values()) == 1
    assert {event.source.partition("@")[0] for event in loop.events(*FACTS)} == {"observer"}
    assert not [event for event in loop.events() if event.data.kind is Kind.REQUEST]
    assert loop.events(RegressionDetected)
    assert len({event.data.daemon for event in loop.events(DaemonReady)}) == 7
    ratings = [event.data.elo for event in loop.events(EvaluationCompleted) if event.data.purpose == "rating"]
    assert max(ratings) > ratings[0] + 200
