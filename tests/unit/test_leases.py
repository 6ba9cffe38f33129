"""Leases: jobs of a kind, shared by the daemons of several machines."""

from collections import Counter
from functools import partial
from typing import Any

import pytest
from builders import configured, ready, recorded, training_failed, training_of
from driving import KEY, NEW, OLD, OTHER_KEY, folded, run_settings
from hypothesis import given
from hypothesis import strategies as st

from flyball.app.controllers.fold import Fold
from flyball.app.events import (
    ClockTick,
    DaemonFailed,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    NodeDegraded,
    NodeLost,
    NodeRecovered,
    NodeReturned,
    Payload,
    RollCall,
    RollEntry,
    TrainingCompleted,
)
from flyball.app.job_specs import JobContext
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.leases import leased_to
from flyball.daemons.training import Trainer, TrainingLeases

HERE, THERE, AWAY = "here", "there", "away"
KEYS = (KEY, OTHER_KEY, "hex7_2p", "othello_2p", "go7_2p")


class Trainings:
    """The trainers of some machines. They share one fold, since all fold the same events."""

    def __init__(self) -> None:
        identity = WorkerIdentity("training@here", HERE, JobContext(store="store"))
        self.fold = Fold((partial(Trainer, identity=identity), TrainingLeases))
        self.position, self.seconds = 0, 0.0
        self.feed(configured(run_settings(*KEYS)))

    def feed(self, data: Payload, key: str | None = None, source: str = "broker@here") -> list[Any]:
        self.position += 1
        self.seconds += 1
        self.event = recorded(data, self.position, key, seconds=self.seconds, source=source)
        return [emitted.data for emitted in folded(self.fold, self.event).envelopes]

    def ready(self, *nodes: str, capacity: int = 1) -> None:
        for node in nodes:
            self.feed(ready("training", node, capacity=capacity))

    def request(self, key: str = KEY) -> str:
        self.feed(training_of(), key)
        return self.event.id

    def complete(self, request: str, key: str, node: str) -> list[Any]:
        done = TrainingCompleted(request_id=request, model=NEW, parent=OLD, step=1, rows=1, metrics=None, seconds=1.0)
        return self.feed(done, key, f"training@{node}")

    def fail(self, request: str, key: str, node: str, reason: Any = "error") -> list[Any]:
        return self.feed(training_failed(request, reason), key, f"training@{node}")

    def held(self, *nodes: str) -> list[int]:
        return [len(self.leases(node)) for node in nodes]

    def leases(self, node: str) -> frozenset[Any]:
        return leased_to(self.fold.rows(TrainingLeases.name), f"training@{node}")


LOST = NodeLost(daemon="training", node=HERE, silent_seconds=10)


@pytest.fixture
def trainings() -> Trainings:
    return Trainings()


@pytest.fixture
def staffed(trainings: Trainings) -> Trainings:
    trainings.ready(HERE, THERE)
    return trainings


def test_jobs_go_to_the_least_busy_daemons(trainings):
    trainings.ready(HERE, capacity=2)
    trainings.ready(THERE, AWAY)
    for key, held in zip(KEYS, ([0, 0, 1], [1, 0, 1], [1, 1, 1], [2, 1, 1], [2, 1, 1]), strict=True):
        trainings.request(key)
        assert trainings.held(HERE, THERE, AWAY) == held


def test_a_waiting_job_goes_to_the_first_daemon_that_is_free(trainings):
    first, second, third = (trainings.request(key) for key in KEYS[:3])
    assert trainings.held(HERE) == [0], "without a ready daemon, jobs wait"
    trainings.ready(HERE, THERE)
    assert (trainings.leases(HERE), trainings.leases(THERE)) == ({first}, {second})
    trainings.complete(second, KEYS[1], THERE)
    assert (trainings.leases(HERE), trainings.leases(THERE)) == ({first}, {third})


@pytest.mark.parametrize(
    "end",
    [
        LOST,
        DaemonStopped(daemon="training", node=HERE, position=0),
        DaemonFailed(daemon="training", node=HERE, error="no"),
        DaemonStarted(daemon="training", node=HERE, pid=1, version="1"),
    ],
    ids=lambda end: end.event_name,
)
def test_the_jobs_of_a_daemon_that_is_gone_go_to_others(trainings, end):
    trainings.ready(HERE)
    request = trainings.request()
    trainings.ready(THERE)
    trainings.feed(end.replace(daemon="evaluation"))
    assert trainings.leases(HERE) == {request}, "another daemon of that machine has ended"
    trainings.feed(end)
    assert (trainings.leases(HERE), trainings.leases(THERE)) == (frozenset(), {request})


def test_a_daemon_that_returns_gets_new_jobs_only(staffed):
    first = staffed.request()
    staffed.feed(LOST)
    staffed.feed(NodeReturned(daemon="training", node=HERE, silent_seconds=20))
    second = staffed.request(OTHER_KEY)
    assert (staffed.leases(HERE), staffed.leases(THERE)) == ({second}, {first})
    staffed.complete(first, KEY, HERE)
    assert staffed.held(HERE, THERE) == [1, 0], "a late result ends the job"


def test_jobs_of_a_daemon_missing_from_a_roll_call_are_moved(staffed):
    """Journals of older versions have killed trainers without a reported loss."""
    first, second = staffed.request(KEY), staffed.request(OTHER_KEY)
    there = RollEntry(daemon="training", node=THERE, position=0, lost=False)
    staffed.feed(RollCall(daemons=(there, there.replace(daemon="evaluation", node=HERE))))
    assert (staffed.leases(HERE), staffed.leases(THERE)) == (frozenset(), {second})
    staffed.complete(second, OTHER_KEY, THERE)
    assert (staffed.leases(HERE), staffed.leases(THERE)) == (frozenset(), {first})


def degrade(trainings: Trainings) -> NodeDegraded:
    """Let one trainer fail where another succeeds, until it rests."""
    failures, told = trainings.fold.settings.feedback.nodes.failures, []
    for _ in range(failures):
        assert told == []
        mine, other = trainings.request(KEY), trainings.request(OTHER_KEY)
        told = trainings.fail(mine, KEY, HERE)
        if told == []:
            trainings.complete(other, OTHER_KEY, THERE)
    (degraded,) = told
    assert isinstance(degraded, NodeDegraded)
    assert (degraded.worker, degraded.failures, degraded.error) == ("training@here", failures, "no")
    return degraded


def test_a_daemon_that_fails_where_another_succeeds_rests(staffed):
    degraded = degrade(staffed)
    waiting = staffed.request(KEY)
    assert staffed.leases(HERE) == frozenset()
    staffed.seconds += degraded.pause_seconds
    staffed.feed(ClockTick(period_seconds=10))
    assert staffed.leases(HERE) == {waiting}
    assert staffed.complete(waiting, KEY, HERE) == [NodeRecovered(worker="training@here")]


def test_resting_daemon_that_restarts_is_tried_and_recovers(staffed):
    """Otherwise the status would call it degraded for ever."""
    degrade(staffed)
    waiting = staffed.request(KEY)
    staffed.feed(DaemonStarted(daemon="training", node=HERE, pid=1, version="1"))
    staffed.ready(HERE, capacity=4)
    assert staffed.leases(HERE) == {waiting}
    staffed.request("hex7_2p")
    assert staffed.leases(HERE) == {waiting}, "one job at a time until one succeeds"
    assert staffed.complete(waiting, KEY, HERE) == [NodeRecovered(worker="training@here")]
    assert len(staffed.leases(HERE)) == 1


@pytest.mark.parametrize("reason", ["error", "diverged", "bad_data"])
def test_a_daemon_without_fault_goes_on(staffed, reason):
    """A job that fails everywhere is at fault itself. Resting would stop one machine after the other."""
    for _ in range(10):
        mine, other = staffed.request(KEY), staffed.request(OTHER_KEY)
        assert staffed.fail(mine, KEY, HERE, reason) == []
        ended = staffed.fail if reason == "error" else staffed.complete
        assert ended(other, OTHER_KEY, THERE) == []


def test_a_job_of_a_dropped_configuration_holds_no_lease(trainings):
    trainings.ready(HERE)
    trainings.request(KEY)
    other = trainings.request(OTHER_KEY)
    trainings.feed(configured(run_settings(OTHER_KEY)))
    trainings.feed(ClockTick(period_seconds=10))
    assert trainings.leases(HERE) == {other}


NODES = st.sampled_from([HERE, THERE, AWAY])
SIGNS = st.one_of(
    st.builds(DaemonReady, daemon=st.just("training"), node=NODES, position=st.just(0), capacity=st.integers(0, 3)),
    st.builds(DaemonStarted, daemon=st.just("training"), node=NODES, pid=st.just(1), version=st.just("1")),
    st.builds(DaemonStopped, daemon=st.just("training"), node=NODES, position=st.just(0)),
    st.builds(NodeLost, daemon=st.just("training"), node=NODES, silent_seconds=st.just(10.0)),
    st.builds(NodeReturned, daemon=st.just("training"), node=NODES, silent_seconds=st.just(10.0)),
    st.just(ClockTick(period_seconds=10.0)),
)
OUTCOMES = st.tuples(st.sampled_from(["complete", "error", "diverged"]), st.sampled_from(KEYS), NODES)


@given(st.lists(st.one_of(SIGNS, st.sampled_from(KEYS), OUTCOMES), max_size=40))
def test_leases_after_any_history_are_sound(history):
    """No job is leased twice, or to an absent daemon. No slot is free while a job waits."""
    trainings, up = Trainings(), dict[str, int]()
    for what in history:
        match what:
            case str() as key:
                trainings.request(key)
            case (verb, key, node):
                end(trainings, verb, key, node)
            case sign:
                trainings.feed(sign)
                note(up, sign)
        check_leases(trainings, up)


def end(trainings: Trainings, verb: Any, key: str, node: str) -> None:
    row = trainings.fold.rows(Trainer.name).get(key)
    if row and row.cause and verb == "complete":
        trainings.complete(row.cause.id, key, node)
    elif row and row.cause:
        trainings.fail(row.cause.id, key, node, verb)


def note(up: dict[str, int], sign: Any) -> None:
    """Note the capacity of each machine whose daemon is certainly ready."""
    match sign:
        case DaemonReady():
            up[sign.node] = sign.capacity
        case DaemonStarted() | DaemonStopped() | NodeLost():
            up.pop(sign.node, None)


def check_leases(trainings: Trainings, up: dict[str, int]) -> None:
    rows = trainings.fold.rows(TrainingLeases.name)
    daemons = {name.removeprefix("daemon:"): row.daemon for name, row in rows.items() if row.daemon}
    held = Counter(row.holder for row in rows.values() if row.holder)
    pending = {cause.id for cause, _ in Trainer.pending(trainings.fold.rows(Trainer.name))}
    leased = [job for node in (HERE, THERE, AWAY) for job in trainings.leases(node)]
    assert len(leased) == len(set(leased))
    assert pending >= set(leased)
    assert all(daemons[f"training@{node}"].capacity == capacity for node, capacity in up.items())
    assert all(daemons[f"training@{node}"].up for node in up)
    places = {name: one.job_slots(1) for name, one in daemons.items()}
    assert all(places[holder] for holder in held)
    free = any(held[name] < count for name, count in places.items())
    assert len(leased) == len(pending) or not free
