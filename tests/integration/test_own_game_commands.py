"""Commands outside a loop find a game beside the settings. The processes that play for them find it, too."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("nim")
    for file in ("nim.py", "nim.toml"):
        shutil.copy(EXAMPLES / file, where)
    return where


def flyball(folder: Path, *words: str) -> Any:
    """Run a command outside the settings' folder; return its JSON output."""
    command = [sys.executable, "-m", "flyball.app.cli", "--config-file", str(folder / "nim.toml"), *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    output = folder / "training"
    settings = ("collection.num_iterations=1", "collection.games_per_iteration=64", "training.eval_games=20")
    words = [word for setting in (*settings, "training.final_games=20") for word in ("--set", setting)]
    flyball(folder, "train", "nim_2p", "--output", str(output), *words)
    return output


def test_two_processes_evaluate_a_policy_that_train_made(folder: Path, trained: Path) -> None:
    words = ("--config", "nim_2p", "--model", str(trained), "--against", "random", "--games", "40", "--workers", "2")
    found = flyball(folder, "eval", *words)
    assert (found["rules"], found["results"][0]["games"]) == ("nim-1:Nim", 40)


def test_settings_of_an_own_game_are_fine(folder: Path) -> None:
    found = flyball(folder, "config", "check")
    assert found.pop("store_bytes").keys() == {"nim_2p"}
    assert found == {"ok": True, "configs": ["nim_2p"]}


def test_own_game_is_simulated(folder: Path) -> None:
    found = flyball(folder, "simulate", "--configs", "nim_2p", "--days", "0.05", "--jobs", "1")
    assert found
