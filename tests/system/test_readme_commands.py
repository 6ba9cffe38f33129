"""Every command and example of the README and ADR/guide/operating.md works.

They run in the order in which a newcomer meets them.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from running_loop import FLYBALL, RunningLoop
from terminal import CTRL_C, on_a_terminal, type_in

from flyball.app.cli.auditing import LEAST_MEMBERS
from flyball.app.config.loading import load
from flyball.app.core import ModelHash
from flyball.app.events import CheckpointAdded, ModelPromoted
from flyball.daemons.suitability import check_playable

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
README, OPERATING = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "ADR/guide/operating.md"))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


LINES = [line for block in blocks(README, "sh") + blocks(OPERATING, "sh") for line in block.splitlines()]
COMMANDS = list(dict.fromkeys(line.partition("  #")[0].rstrip() for line in LINES))

CONFIGS = ("connect_four_2p", "hex7_2p")
"""The laptop's games that the commands name."""

GAME = """
[games.{key}]
rows_per_training = 1024
[games.{key}.selfplay]
games_per_request = 32
[games.{key}.evaluation]
opening_plies = 8
random_games = 40
model_games = 20
anchor_games = 20
"""
SETTINGS = f"""
seed = 7
configs = {[*CONFIGS]}
tick_seconds = 1.0
[deployment]
heartbeat_seconds = 1.0
drain_seconds = 3.0
[feedback.quality]
parity_clear_checks = 100
[feedback.lifecycle]
elo0 = -200.0
max_games = 100
[league.admission]
recent_every = 1
{"".join(GAME.format(key=key) for key in CONFIGS)}
"""
START = "make up"
SCENARIO = "flyball scenario "
CI = frozenset({"make test", "make test-all"})
"""Commands that run these tests."""
NO_DIFFERENCE = "Nothing differs.\n"
"""An answer of ``replay --what-if`` about a short loop."""

HERE = [command for command in COMMANDS if command not in {START, *CI} and not command.startswith(SCENARIO)]


def test_the_blocks_are_found() -> None:
    assert {START, *CI} <= set(COMMANDS)
    assert len(HERE) >= 9


@pytest.mark.parametrize("command", sorted(CI))
def test_what_runs_these_tests_is_what_the_readme_says(command: str) -> None:
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith(SCENARIO)])
def test_a_scenario_is_played_by_a_test_of_its_own(command: str) -> None:
    """Scenarios take minutes in a loop that has learned something."""
    name = command.removeprefix(SCENARIO).split()[0]
    assert f'Played(loop.folder, "{name}"' in (ROOT / "tests/system/test_scenarios.py").read_text()


def test_the_settings_can_be_loaded_and_played(tmp_path: Path) -> None:
    for block in blocks(OPERATING, "toml"):
        (tmp_path / "flyball.toml").write_text(block)
        check_playable(load(tmp_path).run)


def members(loop: RunningLoop, key: str) -> set[ModelHash]:
    return {event.data.model for event in loop.events(CheckpointAdded) if event.subject == key}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a loop with `make up` on a terminal; yield its folder. At the end it presses Ctrl-C, and make succeeds."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "run").mkdir()
    (folder / "run" / "flyball.toml").write_text(SETTINGS)
    shutil.copy(ROOT / "tests" / "support" / "policies" / "cartpole.safetensors", folder / "policy.safetensors")
    target = START.removeprefix("make ")
    own = (f"BIN={BIN}", "ARGS=")  # otherwise `make test ARGS=...` would pass on its ARGS
    command = ("make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "-o", "venv", target, *own)
    with ExitStack() as stack:
        shown = stack.enter_context((folder / "up.out").open("wb"))
        process = stack.enter_context(on_a_terminal(command, cwd=folder, stdout=shown, stderr=subprocess.STDOUT))
        stack.callback(process.terminate)
        loop = RunningLoop(folder / "run", process)
        loop.wait_for("a model of each", lambda: {e.subject for e in loop.events(ModelPromoted)} == {*CONFIGS})
        loop.wait_for("a league to audit", lambda: len(members(loop, "connect_four_2p")) >= LEAST_MEMBERS)
        for key in CONFIGS:  # a loop at full speed would slow the commands down many times
            pause = ("emit", "TRAINING_BLOCKED_BY_QUALITY", '{"reason": "a pause"}', "--config-key", key)
            subprocess.run([FLYBALL, "--run", folder / "run", *pause], stdout=subprocess.DEVNULL, check=True)
        yield folder
        type_in(process, CTRL_C)
        assert process.wait(timeout=60) == 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", HERE)
def test_a_command_works_beside_a_running_loop(place: Path, command: str) -> None:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout or done.stderr == NO_DIFFERENCE


def test_the_example_in_python_works_beside_a_running_loop(place: Path) -> None:
    (example,) = blocks(README, "python")
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=place, stdout=subprocess.PIPE, text=True, check=True, timeout=120
    )
    assert " connect_four_2p " in done.stdout
