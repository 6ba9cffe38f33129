"""Tiny comparisons on real games, repeatable apart from measured times. The real loop runs in one process."""

import json
from itertools import count
from pathlib import Path

import pytest
from commands import invoke, refused, succeeded
from replayed import replay

from flyball.app.comparison.run import RunFigures, StudyTask, run_task
from flyball.app.config import GAMES, EvaluationSettings, RunFolder, RunSettings, SelfplaySettings
from flyball.app.events import (
    DaemonFact,
    DaemonStarted,
    NodeLost,
    NodeQuarantined,
    QualityDegraded,
    RunConfigured,
    encode,
)
from flyball.app.journal import SqliteJournalReader, history
from flyball.app.store import FileStore, get_checkpoint

KEY = "tic_tac_toe_2p"
GAME = GAMES[KEY].replace(
    rows_per_training=256,
    selfplay=SelfplaySettings(games_per_request=32),
    evaluation=EvaluationSettings(random_games=20, model_games=20, anchor_games=10),
)
SETTINGS = RunSettings(configs=(GAME,), selfplay_workers=("selfplay_worker@node1", "selfplay_worker@node2"))


def compared(folder: Path, arm: str = "all", seconds: float = 10.0, *troubles: str) -> tuple[RunFigures, list]:
    """Do a run; return its figures and events. Each reading of the meter is 0.1 s later than the last."""
    task = StudyTask(
        settings=SETTINGS,
        arm=arm,
        seed=1,
        seconds=seconds,
        cores=1,
        troubles=troubles,
        folder=folder,
        settings_folder=str(folder),
    )
    ticks = count()
    figures = run_task(task, meter=lambda: 0.1 * next(ticks))
    reader = SqliteJournalReader(task.run_folder.journal)
    try:
        return figures, list(history(reader))
    finally:
        reader.close()


def essence(events: list) -> list:
    """Return events without ``DAEMON_STARTED``, which has the id of a process."""
    return [
        (event.sequence, event.recorded_us, event.source, encode(event.envelope))
        for event in events
        if not isinstance(event.data, DaemonStarted)
    ]


def test_equal_times_of_jobs_give_equal_runs(tmp_path):
    first, again = compared(tmp_path / "a"), compared(tmp_path / "b")
    assert first[0] == again[0]
    assert essence(first[1]) == essence(again[1])
    figures, events = first
    assert figures.unfolded == ()
    assert figures.configs[KEY].counts["promotions"] >= 2
    assert sum(figures.used.values()) == pytest.approx(1.0, abs=0.05)
    assert events[-1].recorded_us - events[0].recorded_us == 10_000_000
    champion = figures.configs[KEY].champion
    assert champion
    kept = FileStore(RunFolder(tmp_path / "a").store)
    assert get_checkpoint(kept, champion).manifest.step == figures.configs[KEY].step
    assert replay(events).differing == 0
    assert {"selfplay_worker@node2", "training@compare", "broker@compare"} <= {event.source for event in events}


def test_without_controllers_every_model_is_promoted(tmp_path):
    figures, events = compared(tmp_path, "none")
    counts = figures.configs[KEY].counts
    assert counts["trainings"] - 1 <= counts["promotions"] <= counts["trainings"]
    assert counts["trainings"] >= 3
    assert not any(event.data.kind == "decision" and event.source.startswith("feedback") for event in events)


def test_false_outcomes_are_refused_and_worker_quarantined(tmp_path):
    figures, events = compared(tmp_path, "all", 30.0, "false-outcomes")
    refused = [event.data for event in events if isinstance(event.data, QualityDegraded)]
    assert {one.worker for one in refused} == {"selfplay_worker@node2"}
    assert {event.data.worker for event in events if isinstance(event.data, NodeQuarantined)} == {
        "selfplay_worker@node2"
    }
    assert figures.configs[KEY].counts["trainings"] >= 3


def test_dead_worker_is_lost_and_the_others_go_on(tmp_path):
    figures, events = compared(tmp_path, "all", 80.0, "dead-worker", "raised-learning-rate")
    silent = [event for event in events if isinstance(event.data, DaemonFact) and event.data.node == "node2"]
    assert silent[-1].recorded_us - events[0].recorded_us <= 20_000_000
    assert [event.data.node for event in events if isinstance(event.data, NodeLost)] == ["node2"]
    _, later = [event for event in events if isinstance(event.data, RunConfigured)]
    assert later.data.settings["configs"][0]["learning_rate"] == pytest.approx(30 * GAME.learning_rate)
    assert figures.configs[KEY].counts["trainings"] >= 5


@pytest.mark.slow
def test_command_compares_continues_and_reports(tmp_path):
    words = ["--run", str(tmp_path / "run"), "compare", "--configs", KEY, "--minutes", "0.05", "--games", "4"]
    words += ["--set", f"games.{KEY}.rows_per_training=512", "--output", str(tmp_path / "study"), "--json"]
    first = succeeded(invoke(*words, catch_exceptions=False))
    result = json.loads(first.stdout)
    assert [arm["arm"] for arm in result["arms"]] == ["all", "none"]
    assert set(result["strengths"][KEY]) >= {"random", *(run["configs"][KEY]["champion"] for run in result["runs"])}
    again = invoke(*words, catch_exceptions=False)
    assert json.loads(again.stdout) == result
    assert again.stderr == ""
    refused(invoke(*words, "--trouble", "slow-worker"), 2, "other troubles")
