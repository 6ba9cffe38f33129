"""Loops of other people's software are governed: promoted, killed -9 and resumed, rolled back after a regression."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from participants import BRISK, participant, promoted, twice
from running_loop import EXAMPLES, RunningLoop, flyball, running_loop

from flyball.app.events import ModelPromoted, ModelRolledBack, NodeLost, RegressionDetected

ALPHA_ZERO = "alpha_zero_loop", ("chex", "flax", "jax", "optax", "orbax.checkpoint")
SB3 = "sb3_loop", ("pettingzoo", "pygame", "sb3_contrib")
TRL = "trl_loop", ("trl",)
PLANTED = 3
"""Most regressions that are planted: the games of one rating may not show a regression."""


@contextmanager
def third_party_loop(
    folder: Path, name: str, packages: tuple[str, ...], *less: tuple[str, str]
) -> Iterator[RunningLoop]:
    """Start a loop whose settings have ``less``: replacements. At its end nothing may have counted twice."""
    for package in packages:
        pytest.importorskip(package, reason=f"{name}.py needs the package {package}")
    shutil.copy(EXAMPLES / f"{name}.py", folder)
    settings = (EXAMPLES / f"{name}.toml").read_text(encoding="utf-8")
    for many, few in less:
        assert many in settings
        settings = settings.replace(many, few)
    with running_loop(folder, "tick_seconds = 1.0\n" + settings + BRISK) as loop:
        yield loop
        assert not twice(loop)
        assert loop.leave() == 0
    assert "different                            0" in flyball(folder, "replay", "--check")


def words(name: str) -> tuple[str, ...]:
    return (sys.executable, "-W", "ignore", f"{name}.py", ".")


FEWER = (("= 20", "= 10"), ("= 40", "= 10"), ("= 50", "= 10"), ("= 280", "= 40"), ("epochs = 8", "epochs = 2"))
"""Few games of AlphaZero, each of whose moves takes tens of milliseconds."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "packages", "less"), [pytest.param(*ALPHA_ZERO, FEWER, id="alpha-zero"), pytest.param(*TRL, (), id="trl")]
)
def test_third_party_loop_resumes_after_kill_9(
    tmp_path: Path, name: str, packages: tuple[str, ...], less: tuple[tuple[str, str], ...]
) -> None:
    with third_party_loop(tmp_path, name, packages, *less) as loop:
        with participant(tmp_path, *words(name)) as process:
            loop.wait_for("a promotion", lambda: promoted(loop))
            process.kill()
            process.wait()
        killed = loop.head()
        with participant(tmp_path, *words(name)):
            loop.wait_for("a verdict after the kill", lambda: loop.loops(killed))


def planted_and_rolled_back(loop: RunningLoop) -> bool:
    """Return whether a planted model was detected and rolled back. Loops may have regressions of their own, too."""
    events = loop.events(ModelPromoted, RegressionDetected, ModelRolledBack)
    planted = {event.data.model for event in events if event.source.startswith("cli@")}
    detected = {event.data.model for event in events if isinstance(event.data, RegressionDetected)}
    rolled_back = {event.data.from_model for event in events if isinstance(event.data, ModelRolledBack)}
    return bool(planted & detected & rolled_back)


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("name", "packages"),
    [pytest.param(*SB3, id="sb3"), pytest.param(*ALPHA_ZERO, id="alpha-zero"), pytest.param(*TRL, id="trl")],
)
def test_third_party_loop_is_governed(tmp_path: Path, name: str, packages: tuple[str, ...]) -> None:
    with third_party_loop(tmp_path, name, packages) as loop:
        for _ in range(2):
            with participant(tmp_path, *words(name)) as process:
                wanted = len(promoted(loop)) + 1
                loop.wait_for("a promotion", lambda wanted=wanted: len(promoted(loop)) >= wanted, 900)
                process.kill()
                process.wait()
            loop.wait_for("the loss", lambda: loop.events(NodeLost))
        with participant(tmp_path, *words(name)):
            for _ in range(PLANTED):
                flyball(tmp_path, "scenario", "regression", "--ready", "900", "--wait", "240", code=None)
                if planted_and_rolled_back(loop):
                    break
        assert planted_and_rolled_back(loop)
