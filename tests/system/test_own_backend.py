"""A backend of the user's own in a running loop: tabular Q-learning beside ``flyball.toml``."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tabular_backend
from running_loop import BRISK, FLYBALL, RunningLoop, copied_example, running_loop

from app.events import (
    AdaptiveParamsChanged,
    DaemonFailed,
    ModelPromoted,
    RunConfigured,
    SelfplayRequested,
    TrainingCompleted,
    TrainingRequested,
)
from app.store import FileStore, get_checkpoint

KEY = "tic_tac_toe_2p"
SETTINGS = BRISK.replace(f"[games.{KEY}]", f"[games.{KEY}]\nbackend = {tabular_backend.NAME!r}\nepochs = 2", 1)

pytestmark = pytest.mark.timeout(500)


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLoop]:
    folder = tmp_path_factory.mktemp("tabular") / "run"
    folder.mkdir()
    shutil.copy(tabular_backend.__file__, folder)
    with running_loop(folder, SETTINGS, cwd=Path("/")) as started:
        started.wait_for("a promotion", lambda: [one for one in promotions(started) if one.data.step > 0])
        yield started


def promotions(loop: RunningLoop) -> list[Any]:
    return loop.events(ModelPromoted)


def trainings(loop: RunningLoop) -> list[Any]:
    return [event for event in loop.events(TrainingCompleted) if event.data.step > 0]


def players(loop: RunningLoop) -> set[str]:
    return {event.data.model for event in loop.events(SelfplayRequested)}


def flyball(loop: RunningLoop, *words: str) -> Any:
    command = [FLYBALL, "--run", str(loop.folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_model_of_an_own_backend_is_promoted(loop: RunningLoop) -> None:
    promoted = promotions(loop)[-1].data
    manifest = get_checkpoint(FileStore(loop.folder / "store"), promoted.model).manifest
    assert (manifest.backend, manifest.content) == (tabular_backend.NAME, "q_table")
    assert manifest.step == promoted.step > 0
    (trained, *_) = [one.data for one in trainings(loop) if one.data.model == promoted.model]
    assert trained.metrics.keys() == {"td_error", "positions"}
    assert trained.metrics["positions"] > 100
    loop.wait_for("games of a trained model", lambda: players(loop) & {one.data.model for one in trainings(loop)})
    assert not loop.events(DaemonFailed)


def test_knobs_that_it_does_not_understand_stay(loop: RunningLoop) -> None:
    (configured,) = loop.events(RunConfigured)
    assert configured.data.settings["configs"][0]["knobs"] == ["learning_rate"]
    decision = {"parameter": "epochs", "value": 7, "previous": 2, "reason": "by hand"}
    flyball(loop, "emit", "HYPERPARAMETER_UPDATED", json.dumps(decision), "--config-key", KEY)
    end = loop.head()
    loop.wait_for("another training", lambda: loop.events(TrainingRequested, after=end))
    assert {one.data.epochs for one in loop.events(TrainingRequested)} == {2}
    assert {one.data.epochs for one in loop.events(AdaptiveParamsChanged)} <= {2}
    lines = flyball(loop, "state", KEY).splitlines()
    (shown,) = [" ".join(line.split()) for line in lines if line.split()[:1] == ["epochs"]]
    assert shown == f"epochs as configured; fixed: backend {tabular_backend.NAME} does not understand it"
    fields = json.loads(flyball(loop, "state", KEY, "--json"))
    assert "fixed" not in fields["learning_rate"]
    assert "does not understand" in fields["base_temperature"]["fixed"]


def test_model_of_an_own_backend_is_evaluated_by_its_job(loop: RunningLoop) -> None:
    words = ("--config", KEY, "--model", "current", "--against", "random", "--games", "20", "--seed", "1")
    (result,) = json.loads(flyball(loop, "eval", *words))["results"]
    assert (result["opponent"], result["games"]) == ("random", 20)


@pytest.mark.slow
def test_model_of_example_backend_is_promoted(tmp_path: Path) -> None:
    """Its trainings find their function beside the settings, and use as many shards as the options say."""
    folder = tmp_path / "run"
    with running_loop(folder, copied_example("own_backend", folder), cwd=tmp_path) as started:
        started.wait_for("a promotion", lambda: [one for one in promotions(started) if one.data.step > 0])
        trained = trainings(started)[0].data
        asked = next(one.data for one in started.events(TrainingRequested) if one.id == trained.request_id)
        assert trained.rows == sum(shard.rows for shard in asked.shards[-4:])
        assert len(asked.shards) > 4
        assert not started.events(DaemonFailed)
