"""`make up` and Ctrl-C, and the commands of the targets."""

import os
import subprocess
from pathlib import Path

import pytest
from terminal import CTRL_C, on_a_terminal, type_in

ROOT = Path(__file__).parents[2]
MAKE = ("make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "-o", "venv")
DRAINING = """#!/usr/bin/env python3
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit({code}))
print(" ".join(["ready", *sys.argv[1:]]), flush=True)
time.sleep(30)
"""


def interrupted(folder: Path, code: int) -> tuple[str, int]:
    """Run `make up` on a terminal, press Ctrl-C; return output and status.

    Its ``flyball`` is a script that exits with ``code``.
    """
    flyball = folder / "flyball"
    flyball.write_text(DRAINING.format(code=code))
    flyball.chmod(0o755)
    command = [*MAKE, "up", f"BIN={folder}", "ARGS=--seed 7"]
    with on_a_terminal(command, stdout=subprocess.PIPE) as terminal:
        assert terminal.stdout is not None
        shown = terminal.stdout.readline()
        type_in(terminal, CTRL_C)
        shown += terminal.stdout.read()
    return shown.decode(), terminal.returncode


def test_make_up_that_is_stopped_with_ctrl_c_succeeds(tmp_path: Path) -> None:
    shown, status = interrupted(tmp_path, code=0)
    assert (shown.split(), status) == (["ready", "up", "--seed", "7", "^C"], 0)


def test_make_up_that_does_not_end_in_order_fails(tmp_path: Path) -> None:
    shown, status = interrupted(tmp_path, code=1)
    assert status == 2
    assert "Error 1" in shown


def test_without_a_terminal_make_up_runs_all_the_same(tmp_path: Path) -> None:
    flyball = tmp_path / "flyball"
    flyball.write_text("#!/bin/sh\necho $@\n")
    flyball.chmod(0o755)
    command = [*MAKE, "up", f"BIN={tmp_path}", "ARGS=--for 1"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("up --for 1\n", "")


PYTHON = """#!/bin/sh
case "$*" in
    *venv*) mkdir -p {venv}/bin && cp $0 {venv}/bin/python;;
    "-m pip"*) echo "$@";;
esac
"""
"""A script in place of Python that copies itself into a venv and prints pip's arguments."""


def installed(folder: Path, *words: str) -> list[str]:
    """Make an environment and return the output."""
    python = folder / "python3"
    python.write_text(PYTHON.format(venv=folder / "venv"))
    python.chmod(0o755)
    command = ["make", "--no-print-directory", "venv", f"VENV={folder / 'venv'}", f"PYTHON={python}", *words]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # also below `make test`
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_make_says_how_much_it_installs_before_it_does(tmp_path: Path) -> None:
    said, pip = installed(tmp_path)
    assert "GB" in said
    assert "index" not in pip, "only the configured one is asked"
    assert installed(tmp_path) == ["make: Nothing to be done for 'venv'."]


def test_pip_flags_choose_the_build_of_torch(tmp_path: Path) -> None:
    index = "--extra-index-url https://example.org/cpu"
    _, pip = installed(tmp_path, f"PIP_FLAGS={index}")
    assert index in pip


PYTEST = ".venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder"
INNER = "tests/unit tests/property tests/contract tests/replay tests/system/test_one_loop.py"
CHAOS = (
    "tests/integration/test_bus_durability.py tests/integration/test_bus_load.py "
    "tests/integration/test_living_processes.py tests/system/test_kill_any_daemon.py tests/system/test_lost_files.py "
    "tests/system/test_participants_killed.py tests/system/test_postgres_loop.py tests/system/test_replay_killed.py "
    "tests/system/test_two_heads.py"
)


@pytest.mark.parametrize(
    ("target", "commands"),
    [
        ("test", [f"{PYTEST} {INNER} -x"]),
        ("test-all", [f"{PYTEST} -x"]),
        ("test-all CI=true", [f"{PYTEST} --hypothesis-profile thorough -x"]),
        (
            "soak SEEDS=7",
            [
                ".venv/bin/python tests/support/bus_soak.py --seeds 7",
                f".venv/bin/python -m pytest -n 0 -m 'not gpu and not vllm' {CHAOS} -x",
            ],
        ),
        ("bench", [".venv/bin/python -m pytest -m benchmark -s tests/benchmarks -x"]),
        (
            "check",
            [
                ".venv/bin/ruff check .",
                ".venv/bin/ruff format --check .",
                ".venv/bin/mypy ",
                ".venv/bin/lint-imports",
                ".venv/bin/python -m flyball.app.events.schemas check",
                ".venv/bin/python -m flyball.app.cli.references check",
            ],
        ),
    ],
)
def test_a_target_runs_these_commands(target: str, commands: list[str]) -> None:
    command = [*MAKE, "-n", "CI=", *target.split(), "ARGS=-x"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [" ".join(line.split()) for line in done.stdout.splitlines()] == [line.strip() for line in commands]
