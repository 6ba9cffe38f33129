"""Loops of other people's software are governed: promoted, killed -9 and resumed, rolled back after a regression."""

import shutil
import sys
from pathlib import Path

import pytest
from participants import BRISK, participant, promoted, twice
from running_loop import EXAMPLES, flyball, running_loop

from flyball.app.events import ModelRolledBack, NodeLost, RegressionDetected

LOOPS = (
    pytest.param("sb3_loop", ("pettingzoo", "pygame", "sb3_contrib"), id="sb3"),
    pytest.param("alpha_zero_loop", ("chex", "flax", "optax", "orbax.checkpoint"), id="alpha-zero"),
)
PLANTED = 3
"""Most regressions that are planted: the games of one rating may not show a regression."""


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(("name", "packages"), LOOPS)
def test_third_party_loop_is_governed(tmp_path: Path, name: str, packages: tuple[str, ...]) -> None:
    for package in packages:
        pytest.importorskip(package, reason=f"{name}.py needs the package {package}")
    shutil.copy(EXAMPLES / f"{name}.py", tmp_path)
    settings = "tick_seconds = 1.0\n" + (EXAMPLES / f"{name}.toml").read_text(encoding="utf-8") + BRISK
    words = (sys.executable, "-W", "ignore", f"{name}.py", ".")
    with running_loop(tmp_path, settings) as loop:
        for _ in range(2):
            with participant(tmp_path, *words) as process:
                wanted = len(promoted(loop)) + 1
                loop.wait_for("a promotion", lambda wanted=wanted: len(promoted(loop)) >= wanted, 900)
                process.kill()
                process.wait()
            loop.wait_for("the loss", lambda: loop.events(NodeLost))
        with participant(tmp_path, *words):
            for _ in range(PLANTED):
                flyball(tmp_path, "scenario", "regression", "--ready", "900", "--wait", "240", code=None)
                if loop.events(ModelRolledBack):
                    break
        assert loop.events(RegressionDetected)
        assert loop.events(ModelRolledBack)
        assert not twice(loop)
        assert loop.leave() == 0
    assert "different                            0" in flyball(tmp_path, "replay", "--check")
