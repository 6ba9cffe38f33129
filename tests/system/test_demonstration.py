"""The demonstration as README starts it: played to its end, and ended by Ctrl-C."""

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running_loop import RunningLoop
from terminal import CTRL_C, on_a_terminal, type_in

from flyball.app.controllers.emitters import emitter_of
from flyball.app.events import HyperparameterUpdated
from flyball.app.scenarios.demonstration import ACTS

ROOT = Path(__file__).parents[2]
(COMMAND,) = set(re.findall(r'`(make up ARGS="--profile demo")`', (ROOT / "README.md").read_text(encoding="utf-8")))


@contextmanager
def demonstration(folder: Path) -> Iterator[tuple[RunningLoop, Path]]:
    """Start README's command on a terminal, in a folder. Yields its loop, and the file of what the terminal shows."""
    program, *words = shlex.split(COMMAND)
    makefile = (
        "--no-print-directory",
        "-f",
        str(ROOT / "Makefile"),
        "-o",
        "venv",
        f"BIN={Path(sys.executable).parent}",
    )
    shown = folder / "shown"
    command = (program, *makefile, *words)
    with (
        shown.open("wb") as output,
        on_a_terminal(command, cwd=folder, stdout=output, stderr=output) as process,
    ):
        try:
            yield RunningLoop(folder / "demo", process), shown
        finally:
            process.terminate()


@pytest.mark.timeout(300)
def test_ctrl_c_ends_it_in_order_with_the_report(tmp_path: Path) -> None:
    with demonstration(tmp_path) as (loop, shown):
        (mistake,) = loop.wait_for("a planted trouble", lambda: loop.events(HyperparameterUpdated))
        type_in(loop.process, CTRL_C)
        assert loop.process.wait(60) == 0
    assert mistake.data.reason == "the plateau scenario: learning is suppressed"
    assert emitter_of(mistake).startswith("operator")
    text = shown.read_text()
    assert f"Act 1 of {len(ACTS)}" in text
    assert "Act 2" not in text
    assert "Workers: " in text, "the report"


@pytest.mark.slow  # up to six minutes
@pytest.mark.timeout(1500)
def test_every_trouble_is_answered_by_who_was_announced(tmp_path: Path) -> None:
    with demonstration(tmp_path) as (loop, shown):
        assert loop.process.wait(1400) == 0
        text = shown.read_text()
        assert f"{len(ACTS)} of {len(ACTS)} troubles were noticed, answered and overcome." in text, text
        for act in ACTS:
            for controller, kinds in act.answers.items():
                for kind in kinds:
                    assert controller in {emitter_of(event) for event in loop.events(kind)}
