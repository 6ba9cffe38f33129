"""Guarantee: kill -9 of any daemon at any moment; the loop goes on, nothing is lost, nothing counts twice."""

import os
import signal
from collections import Counter

import pytest
from running_loop import running_loop

from app.events import (
    EvaluationCompleted,
    EvaluationFailed,
    Event,
    Kind,
    Payload,
    QualityDegraded,
    QualityScoreUpdated,
    SelfplayComplete,
    SelfplayFailed,
    TrainingCompleted,
    TrainingFailed,
)
from app.runtime.registry import DAEMONS

RESULTS = (
    (SelfplayComplete, SelfplayFailed),
    (QualityScoreUpdated, QualityDegraded),
    (TrainingCompleted, TrainingFailed),
    (EvaluationCompleted, EvaluationFailed),
)


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    with running_loop(tmp_path_factory.mktemp("run") / "run") as started:
        started.wait_for_loops(1)
        yield started


@pytest.mark.timeout(500)
@pytest.mark.parametrize("daemon", DAEMONS)
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


def check_history(events: list[Event[Payload]]) -> None:
    """Check order, and that nothing counts twice: no event, no decision, no result."""
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    recorded = [event.recorded_us for event in events]
    assert recorded == sorted(recorded)
    _once(event.id for event in events)
    _once(
        (event.data.seed_name, event.subject, event.envelope.causationid, event.data.model_dump_json())
        for event in events
        if event.data.kind is Kind.DECISION
    )
    for types in RESULTS:
        _once(event.data.request_id for event in events if isinstance(event.data, types))
    trained = [event.data for event in events if isinstance(event.data, TrainingCompleted)]
    _once((data.parent, data.step, data.model) for data in trained)
    causes = {event.id for event in events}
    assert all(event.envelope.causationid in causes for event in events if event.envelope.causationid)


def _once(keys: object) -> None:
    twice = [key for key, count in Counter(keys).items() if count > 1]
    assert not twice


@pytest.mark.timeout(500)
def test_ctrl_c_drains_and_a_new_start_goes_on(tmp_path):
    folder = tmp_path / "run"
    with running_loop(folder) as first:
        first.wait_for_loops(1)
    assert first.process.returncode == 0
    with running_loop(folder) as second:
        before = second.loops()
        second.wait_for_loops(len(before) + 1)
        steps = [event.data.step for event in second.loops()]
        assert steps == sorted(steps)
        check_history(second.events())


def test_the_helper_finds_what_counts_twice(record):
    fact = record(SelfplayFailed(request_id="r", worker="w", error="no"), "tic_tac_toe_2p")
    again = record(SelfplayFailed(request_id="r", worker="w", error="no"), "tic_tac_toe_2p")
    check_history([fact])
    with pytest.raises(AssertionError, match="r"):
        check_history([fact, again])
