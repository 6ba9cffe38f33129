"""Folders with our packages' names in the working directory are ignored.

Their code never runs, as in ``test_own_parts``.
"""

import subprocess
from pathlib import Path

import pytest
from foreign_packages import FOREIGN, foreign_packages
from running_loop import FLYBALL

TRAINING = (
    "collection.num_iterations=1",
    "collection.games_per_iteration=8",
    "training.eval_games=4",
    "training.final_games=0",
)


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Return a working directory with foreign packages whose import ends the process."""
    foreign_packages(tmp_path)
    return tmp_path


def flyball(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FLYBALL, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=280)


@pytest.mark.parametrize(
    "words",
    [
        ("eval", "--config", "connect_four_2p", "--model", "heuristic", "--games", "4", "--workers", "2"),
        ("train", "tic_tac_toe_2p", *(word for setting in TRAINING for word in ("--set", setting))),
        ("simulate", "--nodes", "2", "--configs", "tic_tac_toe_2p", "--days", "0.02", "--seeds", "2", "--jobs", "2"),
    ],
)
def test_foreign_packages_stay_out_of_commands(foreign: Path, words: tuple[str, ...]) -> None:
    done = flyball(foreign, *words)
    assert done.returncode == 0, done.stderr
    assert FOREIGN not in done.stderr
