"""``flyball simulate``: what it prints, draws and refuses."""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.simulation import ARMS

Flyball = Callable[..., Result]
SMALL = ("simulate", "--nodes", 4, "--configs", "tic_tac_toe_2p,hex7_2p", "--days", 0.25)


@pytest.fixture
def flyball(tmp_path: Path) -> Flyball:
    return lambda *words: CliRunner().invoke(main, ["--run", str(tmp_path), *map(str, words)], prog_name="flyball")


def test_it_compares_all_controllers_with_none(flyball: Flyball) -> None:
    done = flyball(*SMALL, "--seeds", 2)
    assert done.exit_code == 0, done.stderr
    arms = [line.split()[0] for line in done.stdout.splitlines()]
    assert arms == ["arm", "all", "none"]
    assert len(done.stderr.splitlines()) == 4


def test_json_holds_arms_and_runs(flyball: Flyball) -> None:
    done = flyball(*SMALL, "--seeds", 2, "--first-seed", 5, "--jobs", 2, "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert [arm["arm"] for arm in told["arms"]] == ["all", "none"]
    assert [(run["arm"], run["seed"]) for run in told["runs"]] == [("all", 5), ("none", 5), ("all", 6), ("none", 6)]
    assert all(run["events"] > 100 for run in told["runs"])


def test_no_run_outlives_a_command_that_was_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "app.cli", "--run", str(tmp_path), *map(str, SMALL), "--days", "7", "--jobs", "2"]
    with subprocess.Popen([*words, "--seeds", "4"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        runs = []
        while len(runs) < 2:
            runs = [one for one in psutil.Process(command.pid).children() if "spawn_main" in " ".join(one.cmdline())]
        command.kill()
    _, alive = psutil.wait_procs(runs, timeout=60)
    assert not alive


def test_ablation_leaves_out_each_controller_in_turn(flyball: Flyball) -> None:
    done = flyball(*SMALL, "--ablate", "--json")
    assert done.exit_code == 0, done.stderr
    assert [arm["arm"] for arm in json.loads(done.stdout)["arms"]] == list(ARMS)


def test_settings_reach_the_controllers(flyball: Flyball) -> None:
    told = [
        json.loads(flyball(*SMALL, "--set", f"games.hex7_2p.rows_per_training={rows}", "--json").stdout)["runs"]
        for rows in (8_000, 64_000)
    ]
    assert told[0][0]["trainings"] > told[1][0]["trainings"]


def test_the_plant_can_be_replaced(flyball: Flyball, tmp_path: Path) -> None:
    text = (files("app.simulation") / "plant.toml").read_text(encoding="utf-8")
    (tmp_path / "hopeless.toml").write_text(text.replace("ceiling = ", "ceiling = 1e-6 # "), encoding="utf-8")
    told = json.loads(flyball(*SMALL, "--plant", tmp_path / "hopeless.toml", "--json").stdout)
    assert told["runs"][1]["total"][-1] < 1


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_it_draws(flyball: Flyball, tmp_path: Path, suffix: str) -> None:
    done = flyball(*SMALL, "--plot", tmp_path / f"figure.{suffix}")
    assert done.exit_code == 0, done.stderr
    drawn = (tmp_path / f"figure.{suffix}").read_bytes()
    assert drawn.startswith(b"\x89PNG") if suffix == "png" else b"<svg" in drawn


def test_unfit_arguments_are_refused_before_anything_runs(flyball: Flyball, tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text("[time]\nrequest = -1\n", encoding="utf-8")
    short = flyball(*SMALL, "--plant", tmp_path / "short.toml")
    assert (short.exit_code, "short.toml" in short.stderr) == (2, True)
    assert flyball(*SMALL, "--plant", tmp_path / "absent.toml").exit_code == 2
    unknown = flyball(*SMALL, "--set", "feedback.stall.velocitty=3")
    assert (unknown.exit_code, "feedback.stall.velocity" in unknown.stderr) == (2, True)
    assert flyball("simulate", "--configs", "chess_2p").exit_code == 4
    twice = flyball("simulate", "--configs", "hex7_2p,hex7_2p")
    assert (twice.exit_code, "names a configuration twice" in twice.stderr) == (2, True)
    nowhere = flyball(*SMALL, "--plot", tmp_path / "figure.bmp2")
    assert (nowhere.exit_code, ".svg" in nowhere.stderr) == (2, True)
    no_folder = flyball(*SMALL, "--plot", tmp_path / "absent" / "figure.svg")
    assert (no_folder.exit_code, "there is no folder" in no_folder.stderr) == (2, True)
