"""``flyball simulate``: its output, figures and refusals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import psutil
import pytest
from commands import Flyball, refused, succeeded

from flyball.app.cli.simulate import COLUMNS
from flyball.app.simulation import ARMS

CLUSTER = ("simulate", "--nodes", 4, "--configs", "tic_tac_toe_2p,hex7_2p")
SMALL = (*CLUSTER, "--days", 0.1)
PLANT = (files("flyball.app.simulation") / "plant.toml").read_text(encoding="utf-8")


def test_it_compares_all_controllers_with_none_and_draws(flyball: Flyball, tmp_path: Path) -> None:
    """With several seeds the figure shows intervals, too."""
    figure = tmp_path / "figure.svg"
    done = succeeded(flyball(*SMALL, "--seeds", 2, "--plot", figure))
    arms = [line.split()[0] for line in done.stdout.splitlines()]
    assert arms == ["arm", "all", "none"]
    assert len(done.stderr.splitlines()) == 4
    drawn = figure.read_text(encoding="utf-8")
    assert "strength apart from models' luck, Elo" in drawn
    assert "gain in strength, models' luck included, Elo" in drawn
    assert drawn.count("95%") == 2
    assert flyball(*SMALL, "--plot", figure).exit_code == 0
    assert figure.read_text(encoding="utf-8").count("95%") == 0
    assert flyball(*SMALL, "--plot", tmp_path / "figure.png").exit_code == 0
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_json_holds_arms_and_runs(flyball: Flyball) -> None:
    done = succeeded(flyball(*SMALL, "--seeds", 2, "--first-seed", 5, "--jobs", 2, "--json"))
    told = json.loads(done.stdout)
    assert [arm["arm"] for arm in told["arms"]] == ["all", "none"]
    assert [(run["arm"], run["seed"]) for run in told["runs"]] == [("all", 5), ("none", 5), ("all", 6), ("none", 6)]
    assert all(run["events"] > 100 for run in told["runs"])


@contextmanager
def begun(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[psutil.Process]]]:
    """Begin a long command; yield it and its processes.

    Two runs are under way then. Afterwards all processes must be gone.
    """
    words = [
        sys.executable,
        "-m",
        "flyball.app.cli",
        "--run",
        str(tmp_path),
        *map(str, CLUSTER),
        "--days",
        "1",
        "--jobs",
        "2",
    ]
    with (tmp_path / "stderr").open("wb") as stderr:
        command = subprocess.Popen([*words, "--seeds", "40"], stdout=stderr, stderr=stderr, start_new_session=True)
    runs = list[psutil.Process]()
    try:
        while len(runs) < 2:
            time.sleep(0.05)
            runs = [one for one in psutil.Process(command.pid).children() if "flyball.app.engine" in one.cmdline()]
        yield command, runs
    finally:
        command.kill()
        command.wait()
    _, alive = psutil.wait_procs(runs, timeout=60)
    assert not alive


def test_no_run_outlives_a_command_that_was_killed(tmp_path: Path) -> None:
    with begun(tmp_path) as (command, _):
        command.kill()


@pytest.mark.parametrize("done", [0, 1], ids=["while the processes start", "while they run"])
def test_ctrl_c_ends_all_runs_quietly(tmp_path: Path, done: int) -> None:
    said = tmp_path / "stderr"
    with begun(tmp_path) as (command, runs):
        while said.read_text().count("\n") < done:
            assert command.poll() is None
            time.sleep(0.05)
        os.killpg(command.pid, signal.SIGINT)  # as a terminal does it: to all of them
        assert command.wait(timeout=60) == 130
        assert not any(run.is_running() for run in runs)
    lines = [line for line in said.read_text().splitlines() if line]
    assert lines[-1] == "Aborted!"
    assert all("/80: seed" in line for line in lines[:-1]), lines


def test_ablation_leaves_out_each_controller_in_turn(flyball: Flyball) -> None:
    done = succeeded(flyball(*SMALL, "--ablate", "--json"))
    assert [arm["arm"] for arm in json.loads(done.stdout)["arms"]] == list(ARMS)


def test_settings_reach_the_controllers(flyball: Flyball) -> None:
    told = [
        json.loads(flyball(*SMALL, "--set", f"games.hex7_2p.rows_per_training={rows}", "--json").stdout)["runs"]
        for rows in (8_000, 64_000)
    ]
    assert told[0][0]["trainings"] > told[1][0]["trainings"]


def test_the_plant_can_be_replaced(flyball: Flyball, tmp_path: Path) -> None:
    (tmp_path / "hopeless.toml").write_text(PLANT.replace("ceiling = ", "ceiling = 1e-6 # "), encoding="utf-8")
    told = json.loads(flyball(*SMALL, "--plant", tmp_path / "hopeless.toml", "--json").stdout)
    assert told["runs"][1]["total"][-1] < 1


def test_plant_may_have_curves_of_any_known_configuration(flyball: Flyball, tmp_path: Path) -> None:
    """Use a configuration of the run's own that is not played."""
    (tmp_path / "own.toml").write_text(PLANT.replace("configs.hex7_2p", "configs.hex5_2p"), encoding="utf-8")
    result = flyball(*SMALL, "--plant", tmp_path / "own.toml")
    refused(result, 2, "'configs.hex5_2p'")
    assert "Did you mean configs.hex7_2p?" in result.stderr
    (tmp_path / "flyball.toml").write_text('[games.hex5_2p]\ngame = "hex(board_size=5)"\nplayers = 2\n')
    assert flyball(*SMALL, "--plant", tmp_path / "own.toml").exit_code == 0


def test_the_order_of_configurations_decides_nothing(flyball: Flyball, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text('[games.hex5_2p]\ngame = "hex(board_size=5)"\nplayers = 2\n')
    told = [
        flyball("simulate", "--nodes", 4, "--days", 0.25, "--configs", keys, "--json").stdout
        for keys in ("tic_tac_toe_2p,hex7_2p,hex5_2p", "hex5_2p, hex7_2p,tic_tac_toe_2p")
    ]
    assert told[0] == told[1]
    assert list(json.loads(told[0])["runs"][0]["gain"]) == ["tic_tac_toe_2p", "hex7_2p", "hex5_2p"]


def test_no_gain_is_less_than_nothing_by_less_than_half_an_elo(flyball: Flyball, tmp_path: Path) -> None:
    luck_only = PLANT.replace("ceiling = ", "ceiling = 1e-6 # ").replace("jitter_elo = ", "jitter_elo = 0.01 # ")
    (tmp_path / "luck.toml").write_text(luck_only, encoding="utf-8")
    done = flyball(*SMALL, "--seeds", 4, "--plant", tmp_path / "luck.toml")
    assert "+0 Elo" in done.stderr
    assert "-0" not in done.stdout + done.stderr


def test_help_explains_every_column(flyball: Flyball) -> None:
    told = flyball("simulate", "--help").stdout.partition("Columns")[2]
    names = [name.replace("regressions noticed", "regressions") for name in COLUMNS if name != "arm"]
    assert all(f"\n  {name} " in told for name in names)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--plant", "short.toml"), 2, "short.toml"),
        (("--plant", "absent.toml"), 2, "There is no plant file"),
        (("--plant", "absent.toml"), 2, "plant.toml is a start"),
        (("--set", "feedback.stall.velocitty=3"), 2, "feedback.stall.velocity"),
        (("--configs", "chess_2p"), 4, "chess_2p"),
        (("--configs", "hex7_2p,hex7_2p"), 2, "A configuration is named twice"),
        (("--configs", ""), 2, "at least one"),
        (("--plot", "figure.bmp2"), 2, ".svg"),
        (("--plot", "absent/figure.svg"), 2, "there is no folder"),
        (("--plan", "--days", 1), 2, "--days does not go with --plan"),
        (("--hours", 1), 2, "--hours needs --plan"),
        (("--on-head", "training"), 2, "write KIND=NUMBER"),
        (("--on-head", "trainng=1"), 2, "trainng"),
        (("--on-head", "training=0", "--on-nodes", "training=0"), 2, "No machine has a process for training"),
    ],
)
def test_unfit_arguments_are_refused_before_anything_runs(
    flyball: Flyball, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "short.toml").write_text("[time]\nrequest = -1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    refused(flyball("simulate", *words), code, said)


PLAN = ("simulate", "--plan", "--nodes", 2, "--configs", "hex7_2p,clobber_2p", "--hours", 2)


def test_plan_names_the_bottleneck_and_what_is_needed(flyball: Flyball) -> None:
    done = succeeded(flyball(*PLAN))
    tables = done.stdout.split("Needed")
    assert len(tables) == 2
    for table in tables:
        kinds = [line.split()[0] for line in table.splitlines() if line[:1].islower()]
        assert kinds[:6] == ["kind", "selfplay", "inspection", "training", "evaluation", "distribution"]
        assert "bottleneck: " in table
        assert "useful nodes: " in table


def test_plan_is_the_least_that_keeps_waits_short(flyball: Flyball) -> None:
    """The head alone has trainers as configured."""
    words = ("--on-nodes", "training=0", "--json")
    told = json.loads(flyball(*PLAN, *words).stdout)
    assert told == json.loads(flyball(*PLAN, *words).stdout)
    needed = told["needed"]
    kinds = {one["kind"]: one for one in needed["load"]["kinds"]}
    assert {kind: one["processes"] for kind, one in kinds.items()} == needed["processes"]
    allowed = told["most_wait"] * sum(one["seconds"] for one in kinds.values())
    assert all(kinds[kind]["wait_95_seconds"] <= allowed for kind in ("inspection", "training", "evaluation"))
    assert told["given"]["processes"]["training"] == 1
    given = {one["kind"]: one for one in told["given"]["load"]["kinds"]}
    assert needed["processes"]["training"] > 1
    assert given["training"]["wait_95_seconds"] > allowed


def test_processes_on_head_and_nodes_are_those_simulated(flyball: Flyball) -> None:
    words = ("--on-head", "training=3", "--on-head", "selfplay=0", "--on-nodes", "inspection=0", "--json")
    told = json.loads(flyball(*PLAN, *words).stdout)["given"]["processes"]
    assert told == {"selfplay": 2, "inspection": 1, "training": 5, "evaluation": 3, "distribution": 1}


def test_fewer_cores_make_jobs_take_longer(flyball: Flyball) -> None:
    def training_seconds(*words: str) -> float:
        kinds = json.loads(flyball(*PLAN, *words, "--json").stdout)["given"]["load"]["kinds"]
        return next(kind["seconds"] for kind in kinds if kind["kind"] == "training")

    assert training_seconds("--on-head", "cores=1", "--on-nodes", "cores=1") > 1.2 * training_seconds()
