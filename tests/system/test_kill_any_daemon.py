"""Guarantee: kill -9 of any daemon at any moment; the loop goes on, nothing is lost, nothing counts twice."""

import os
import signal

import pytest
from history_checks import check_history
from running_loop import STARTED

from app.events import SelfplayFailed


@pytest.mark.timeout(500)
@pytest.mark.parametrize("daemon", STARTED)
def test_the_loop_goes_on_by_itself(loop, daemon):
    before = loop.events()
    pid = loop.pid_of(daemon)
    os.kill(pid, signal.SIGKILL)
    loop.wait_for(f"{daemon} is back", lambda: loop.ready(daemon, after=before[-1].sequence))
    assert loop.pid_of(daemon) != pid
    loop.wait_for_loops(2, after=loop.head())
    after = loop.events()
    assert after[: len(before)] == before, "an event that was recorded has changed or gone"
    check_history(after)


def test_the_helper_finds_what_counts_twice(record):
    fact = record(SelfplayFailed(request_id="r", worker="w", error="no"), "tic_tac_toe_2p")
    again = record(SelfplayFailed(request_id="r", worker="w", error="no"), "tic_tac_toe_2p")
    check_history([fact])
    with pytest.raises(AssertionError, match="counted twice"):
        check_history([fact, again])
