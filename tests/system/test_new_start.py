"""An ended loop leaves only its folder, and restarts there. It may have ended in order or not."""

from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from history_checks import check_history
from running_loop import STARTED, RunningLoop, running_loop

from flyball.app.events import Event, ModelPromoted, ModelRolledBack, PromotionRejected


@pytest.fixture(scope="module")
def again(loop: RunningLoop) -> Iterator[RunningLoop]:
    """Stop the loop with Ctrl-C, and restart it in the same folder."""
    assert loop.leave() == 0
    settings = (loop.folder / "flyball.toml").read_text()
    head = loop.head()
    with running_loop(loop.folder, settings) as started:
        started.wait_for("all daemons", lambda: all(started.ready(daemon, after=head) for daemon in STARTED))
        yield started


@pytest.mark.timeout(500)
def test_ctrl_c_drains_and_a_new_start_goes_on(again: RunningLoop) -> None:
    before = again.loops()
    again.wait_for_loops(len(before) + 1)
    check_history(again.events())
    check_steps(again.events(ModelPromoted, PromotionRejected, ModelRolledBack))


def check_steps(verdicts: list[Event[Any]]) -> None:
    """Assert that training never restarted from the beginning.

    Each model that is judged has a later step than the current one.
    """
    current = -1
    for verdict in verdicts:
        went_back = isinstance(verdict.data, ModelRolledBack)
        assert went_back == (verdict.data.step <= current), verdict
        if not isinstance(verdict.data, PromotionRejected):
            current = verdict.data.step


@pytest.mark.timeout(500)
def test_nothing_outlives_a_killed_supervisor(again: RunningLoop) -> None:
    children = psutil.Process(again.process.pid).children(recursive=True)
    assert len(children) >= len(STARTED)
    again.process.kill()
    _, alive = psutil.wait_procs(children, timeout=200)
    assert alive == []
