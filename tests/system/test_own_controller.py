"""The example of an own controller in a running loop: it decides, and the loop closes."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from own_training import EXAMPLES
from running_loop import BRISK, FLYBALL, running_loop

from app.events import AdaptiveParamsChanged, HyperparameterUpdated, ModelPromoted

KEY = "tic_tac_toe_2p"


@pytest.mark.timeout(500)
def test_example_controller_owns_the_learning_rate(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(EXAMPLES / "my_controller.py", folder)
    settings = BRISK + (EXAMPLES / "my_controller.toml").read_text().partition("\n\n")[2]  # BRISK names the game

    def flyball(*words: str) -> Any:
        done = subprocess.run([FLYBALL, "--run", str(folder), *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    with running_loop(folder, settings, cwd=Path("/")) as loop:

        def decided() -> list:
            return [one for one in loop.events(HyperparameterUpdated) if one.data.parameter == "learning_rate"]

        decision = loop.wait_for("a decision", decided)[0]
        loop.wait_for("a promotion", lambda: [one for one in loop.events(ModelPromoted) if one.data.step > 0])
        assert decision.data.reason.endswith("after training 1")
        assert not loop.events(AdaptiveParamsChanged)
    traced = json.dumps(flyball("trace", decision.id, "--json"))
    assert "flyball.training.completed" in traced
    assert "flyball.training.hyperparameter_updated" in traced
    rate = flyball("state", KEY, "learning_rate", "--json")["learning_rate"]
    assert (rate["owner"], rate["event"]["name"]) == ("cosine", "HYPERPARAMETER_UPDATED")
    report = flyball("replay", "--check", "--json")
    assert (report["differing"], report["unfolded"]) == (0, [])
    assert report["matched"]["HYPERPARAMETER_UPDATED"] >= 1
