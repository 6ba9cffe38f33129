"""Golden runs replay to the recorded decisions and the expected state.

After a change that is meant to alter decisions, make the runs again: ``python tests/support/golden_runs.py``.
"""

import pytest
from driving import folded
from golden_runs import DECIDED, FOLDER, NAMES, expected, load, summary
from replayed import replay, replayed_apart

from flyball.app.controllers import FeedbackFold
from flyball.app.controllers.fold import Fold
from flyball.app.events import TrainingCompleted
from flyball.app.replay.explain import verify
from flyball.app.replay.replaying import state_hash


@pytest.mark.parametrize("name", NAMES)
def test_golden_runs_replay(name):
    events = load(name)
    report = replay(events)
    verify(lambda: events, report)
    assert summary(report) == expected()[name]


@pytest.mark.parametrize("name", NAMES)
def test_golden_runs_replay_by_daemon(name):
    """Controllers in daemons of their own come to the same state."""
    events = load(name)
    parts = replayed_apart(events)
    for part in parts:
        verify(lambda: events, part.report(len(events)))
    tables = {reducer: rows for part in parts for reducer, rows in part.tables().items()}
    assert state_hash(tables) == expected()[name]["state_hash"]


@pytest.mark.parametrize("name", NAMES)
def test_states_of_golden_runs_are_valid_after_every_event(name):
    fold = Fold((FeedbackFold,))
    for event in load(name):
        folded(fold, event)
    assert fold.states


def test_every_kind_of_decision_is_in_them():
    taken = {type(event.data) for event in load("generated")}
    assert taken >= DECIDED


def test_the_recorded_run_closes_loops_of_two_games():
    trained = {event.subject for event in load("recorded") if isinstance(event.data, TrainingCompleted)}
    assert trained == {"tic_tac_toe_2p", "connect_four_2p"}


def test_they_are_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 400_000
