"""No event that validation accepts stops a fold."""

from collections import Counter
from itertools import islice

import pytest
from fuzzed_events import SETTINGS, Fuzzer

from flyball.app.controllers.fold import Fold
from flyball.app.events import CATALOGUE, decode, encode
from flyball.app.events.envelope import EPOCH
from flyball.app.job_specs import JobContext
from flyball.app.replay.replaying import Replay, controllers
from flyball.app.status.league import read_leagues
from flyball.app.status.status import Board
from flyball.app.status.summary import event_text
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.registry import DAEMONS

IDENTITY = WorkerIdentity(name=SETTINGS.selfplay_workers[0], node="laptop", context=JobContext(store="store"))
WORKERS = [spec for spec in DAEMONS.values() if spec.worker]


def check_folds(each: int, seed: int) -> Counter[str]:
    """Feed events of each type to every fold, in random order. Returns the number of events by name."""
    fuzzer = Fuzzer(seed)
    events = list(fuzzer.events(fuzzer.payloads(CATALOGUE, each)))
    assert all(decode(encode(event.envelope)) == event.envelope for event in events)
    fold, board, replay = Fold(controllers()), Board(), Replay()
    hosts = [Fold(spec.factories(IDENTITY)) for spec in WORKERS]
    for event in events:
        for one in (fold, *hosts):
            failures = one.feed([event]).failures
            unusable = event.data.event_name == "RUN_CONFIGURED" and event.source == "cli@laptop"
            assert failures == [] or unusable, (event.data, failures)
        board.feed([event])
        replay.feed([event])
        event_text(event)
    board.status(EPOCH, None, running=True)
    read_leagues(events)
    replay.report(len(events))
    for one in (fold, *hosts):
        check_rows(one)
    return Counter(event.data.event_name for event in islice(events, 1, None))


def check_rows(fold: Fold) -> None:
    """Check that a restarted daemon reads its rows and finds its jobs."""
    for rows in fold.tables().values():
        for row in rows.values():
            assert type(row).from_json(row.to_json()) == row
    for reducer in fold.reducers:
        if hasattr(reducer, "jobs"):
            list(reducer.jobs({key: row for key, row in fold.rows(reducer.name).items() if row.cause}, fold.states))


@pytest.mark.parametrize("seed", range(2))
def test_fold_fuzzed_events_never_fails(seed):
    assert set(check_folds(60, seed).values()) == {60}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fold_thousand_events_of_each_type_never_fails():
    assert set(check_folds(1000, 7).values()) == {1000}
