"""A loop that ends, in order or not, leaves nothing behind but its folder; started there again, it goes on."""

from collections.abc import Iterator

import psutil
import pytest
from history_checks import check_history
from running_loop import RunningLoop, running_loop

from app.events import ModelRolledBack
from app.runtime.registry import DAEMONS


@pytest.fixture(scope="module")
def again(loop: RunningLoop) -> Iterator[RunningLoop]:
    """Stop the loop with Ctrl-C, and start it in the same folder."""
    assert loop.leave() == 0
    settings = (loop.folder / "flyball.toml").read_text()
    head = loop.head()
    with running_loop(loop.folder, settings) as started:
        started.wait_for("all daemons", lambda: all(started.ready(daemon, after=head) for daemon in DAEMONS))
        yield started


@pytest.mark.timeout(500)
def test_ctrl_c_drains_and_a_new_start_goes_on(again: RunningLoop) -> None:
    before = again.loops()
    again.wait_for_loops(len(before) + 1)
    steps = [event.data.step for event in again.loops()]
    assert steps == sorted(steps) or again.events(ModelRolledBack)
    check_history(again.events())


@pytest.mark.timeout(500)
def test_nothing_outlives_a_killed_supervisor(again: RunningLoop) -> None:
    children = psutil.Process(again.process.pid).children(recursive=True)
    assert len(children) >= len(DAEMONS)
    again.process.kill()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
