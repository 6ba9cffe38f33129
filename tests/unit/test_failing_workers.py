"""SelfplayScheduler and its workers: leases, pauses after failures, quarantine (ADR-010)."""

import pytest
from builders import ready, training_failed
from driving import KEY, NEED, OTHER_KEY, Driven, distributed, played, run_settings, scored

from flyball.app.config import DeadlineSettings
from flyball.app.controllers import SelfplayScheduler
from flyball.app.controllers.scheduler import CONFIG
from flyball.app.events import (
    ClockTick,
    DaemonReady,
    NodeDegraded,
    NodeProbed,
    NodeQuarantined,
    NodeRecovered,
    NodeReleased,
    QualityDegraded,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
)

TICK = ClockTick(period_seconds=10)
NODES = run_settings().feedback.nodes
A, B = "selfplay_worker@a", "selfplay_worker@b"


def ready_of(name: str) -> DaemonReady:
    return ready("selfplay_worker", name.partition("@")[2])


def failed(request: str, worker: str) -> SelfplayFailed:
    return SelfplayFailed(request_id=request, worker=worker, error="no")


def scheduler_of(*workers: str, keys: tuple[str, ...] = (KEY,)) -> Driven:
    driven = Driven(SelfplayScheduler, run_settings(*keys))
    for name in workers:
        driven.feed(ready_of(name), key=None)
    return driven


def of(said: list, kind: type) -> list:
    return [payload for payload in said if isinstance(payload, kind)]


def out(driven: Driven, key: str = KEY) -> list[tuple[str, str]]:
    """Return the requests under way: each with its worker."""
    return [(asked.request, asked.worker) for asked in driven.row(CONFIG + key).config.out]


def completed(request: str, worker: str, *, probe: bool = False) -> SelfplayComplete:
    answer = played()
    return answer.replace(request_id=request, probe=probe, shard=answer.shard.replace(worker=worker))


def good(request: str, worker: str, rows: int = 1) -> SelfplayComplete:
    found = scored(rows=rows, request=request)
    return found.replace(shard=found.shard.replace(worker=worker))


class TestLeases:
    @staticmethod
    def pass_time(driven: Driven, seconds: float, start: float = 0.0) -> list:
        times = range(int(start), int(start + seconds) + 1, 10)
        return [p for at in times for p in driven.feed(TICK, key=None, at=at)]

    @pytest.mark.parametrize("restarts", [False, True])
    def test_request_is_given_up_only_if_it_is_never_done(self, restarts):
        """The worker lives on, or dies of the request again and again, and restarts."""
        settings = run_settings().replace(deadlines=DeadlineSettings(selfplay_seconds=600.0))
        driven = Driven(SelfplayScheduler, settings)
        driven.feed(ready_of(A), key=None)
        driven.feed(distributed())
        ((request, _),) = out(driven)
        for start in range(0, 4 * 600 - 20, 60):
            if restarts:
                driven.feed(ready_of(A), key=None, at=start)
            assert not self.pass_time(driven, 50, start)
        assert out(driven) == [(request, A)]
        assert of(self.pass_time(driven, 40, start=4 * 600 - 10), SelfplayRequested)
        assert request not in dict(out(driven))

    def test_long_requests_do_not_pile_up_at_their_worker(self):
        """Requests of 900 s, as long as one and a half leases."""
        driven = scheduler_of(A, keys=(KEY, OTHER_KEY))
        asked = [e.id for key in (KEY, OTHER_KEY) for e in driven.envelopes(distributed(), key=key)]
        for at in range(10, 24 * 3600, 10):
            asked += [e.id for e in driven.envelopes(TICK, key=None, at=at)]
            if at % 900 == 0:
                request = asked.pop(0)
                key = KEY if request in dict(out(driven, KEY)) else OTHER_KEY
                for fact in (completed(request, A), good(request, A)):
                    asked += [e.id for e in driven.envelopes(fact, key=key, at=at)]
            assert len(asked) <= 2, "one runs, one waits"


class Farm:
    """Some workers, of which the broken ones fail after 1 s; the others take 20 s for a request."""

    def __init__(self, workers: int, broken: int, keys: tuple[str, ...] = (KEY, OTHER_KEY)) -> None:
        self.names = [f"selfplay_worker@{number}" for number in range(workers)]
        self.keys = keys
        self.broken = set(self.names[:broken])
        self.driven = scheduler_of(*self.names, keys=keys)
        self.asked: list[tuple[float, str]] = []
        self.due: list[tuple[float, str, str, str]] = []
        for key in keys:
            self.feed(distributed(), key=key, at=0)

    def feed(self, *payloads, key, at) -> list:
        envelopes = self.driven.envelopes(*payloads, key=key, at=at)
        for envelope in envelopes:
            if isinstance(envelope.data, SelfplayRequested):
                worker = envelope.data.worker
                self.asked.append((at, worker))
                self.due.append((at + (1 if worker in self.broken else 20), envelope.id, worker, envelope.subject))
        return [envelope.data for envelope in envelopes]

    def run(self, seconds: int, start: int = 1) -> list:
        said = []
        for at in range(start, start + seconds):
            for answer in [one for one in self.due if one[0] <= at]:
                self.due.remove(answer)
                _, request, worker, key = answer
                if worker in self.broken:
                    said += self.feed(failed(request, worker), key=key, at=at)
                else:
                    said += self.feed(completed(request, worker), good(request, worker), key=key, at=at)
            if at % 1000 == 0:  # there are never rows enough
                for key in self.keys:
                    said += self.feed(training_failed("t"), key=key, at=at)
            if at % 10 == 0:
                said += self.feed(TICK, key=None, at=at)
        return said

    def requests(self, worker: str) -> int:
        return sum(name == worker for _, name in self.asked)


class TestFailures:
    def test_worker_that_fails_at_once_gets_nothing_but_probes(self):
        """Such a worker drew 6,082 of 6,967 requests."""
        farm = Farm(4, broken=1)
        said = farm.run(2 * 3600)
        broken, *others = map(farm.requests, farm.names)
        pauses = [one.pause_seconds for one in of(said, NodeDegraded)]
        assert pauses[:7] == [30, 60, 120, 240, 480, 960, 1800]
        assert broken <= NODES.failures + len(pauses), "each probe ends in a pause"
        assert 20 * broken < min(others)
        assert {one.worker for one in of(said, NodeDegraded)} == {farm.names[0]}

    def test_worker_that_recovers_plays_as_before(self):
        farm = Farm(4, broken=1)
        farm.run(1200)
        farm.broken.clear()
        said = farm.run(1200, start=1201)
        assert [one.worker for one in of(said, NodeRecovered)] == [farm.names[0]]
        before = farm.requests(farm.names[0])
        farm.run(1200, start=2401)
        first, *others = [sum(name == one for at, name in farm.asked if at > 2400) for one in farm.names]
        assert farm.requests(farm.names[0]) > before
        assert first > 0.8 * min(others)

    @pytest.mark.parametrize("workers", [1, 3])
    def test_where_all_workers_fail_probes_go_on(self, workers):
        farm = Farm(workers, broken=workers)
        farm.run(3 * 3600)
        late = [at for at, _ in farm.asked if at > 2 * 3600]
        assert 0 < len(late) < 1000
        farm.broken.clear()
        farm.run(3600, start=3 * 3600 + 1)
        done = [at for at, _ in farm.asked if at > 3.5 * 3600]
        assert len(done) > 50, "it goes on as soon as a probe succeeds"

    @staticmethod
    def fail_all(driven: Driven, done: set[str], start: int, end: int, *keys: str) -> set[str]:
        """Fail each request of configurations once; return the paused workers."""
        said = []
        for at in range(start, end):
            for key in keys:
                for request, worker in out(driven, key):
                    if request not in done:
                        done.add(request)
                        said += driven.feed(failed(request, worker), key=key, at=at)
            said += driven.feed(TICK, key=None, at=at)
        return {one.worker for one in of(said, NodeDegraded)}

    def test_configuration_failing_everywhere_pauses_one_worker(self):
        driven, done = scheduler_of(A, B, keys=(KEY, OTHER_KEY)), set()
        driven.feed(distributed(), key=KEY)
        assert len(self.fail_all(driven, done, 1, 2000, KEY)) <= 1
        assert len(done) > 20

    def test_failure_at_paused_worker_excuses_no_other(self):
        """Worker A fails whatever it plays."""
        driven, done = scheduler_of(A, keys=(KEY, OTHER_KEY)), set()
        driven.feed(distributed(), key=OTHER_KEY)
        assert self.fail_all(driven, done, 1, 60, OTHER_KEY) == {A}
        driven.feed(distributed(), key=KEY, at=60)
        assert self.fail_all(driven, done, 60, 1000, KEY, OTHER_KEY) == {A}
        driven.feed(ready_of(B), key=None, at=1000)
        assert B in self.fail_all(driven, done, 1000, 2000, KEY, OTHER_KEY)

    def test_damaged_shards_count_as_failures(self):
        driven, said = scheduler_of(A), []
        driven.feed(distributed())
        for at in range(0, 100, 20):
            for request, worker in out(driven):
                bad = QualityDegraded(request_id=request, worker=worker, shard="c" * 64, reason="DamagedBlob")
                said += driven.feed(completed(request, worker), bad, at=at)
            said += driven.feed(TICK, key=None, at=at + 19)
        assert {one.worker for one in of(said, NodeDegraded)} == {A}

    def test_worker_that_is_started_again_is_tried_at_once(self):
        farm = Farm(1, broken=1)
        farm.run(3600)
        asked = len(farm.asked)
        farm.feed(ready_of(farm.names[0]), key=None, at=3601)
        assert len(farm.asked) == asked + 1


class TestQuarantine:
    @pytest.fixture
    def alone(self) -> Driven:
        """Return the scheduler of one worker, with a request for it."""
        driven = scheduler_of(A)
        driven.feed(distributed())
        return driven

    @staticmethod
    def quarantined(driven: Driven, worker: str = A, at: float = 1.0, seconds: float = 600.0) -> list:
        decided = NodeQuarantined(worker=worker, lasts_seconds=seconds, reason="x")
        return driven.feed(decided, key=None, at=at)

    def test_requests_and_rows_of_quarantined_worker_are_dropped(self):
        driven = scheduler_of(A, B)
        (first,) = driven.feed(distributed())
        ((request, worker),) = out(driven)
        driven.feed(completed(request, worker), good(request, worker, rows=NEED // 2))
        (again,) = self.quarantined(driven, worker)
        ((request, other),) = out(driven)
        assert {worker, other} == {A, B}
        assert (first.worker, again.worker, again.probe) == (worker, other, False)
        said = driven.feed(completed(request, other), good(request, other, rows=NEED - 1), at=2)
        assert of(said, SelfplayRequested), "without the rows of the quarantined worker one is lacking"

    def test_shard_that_waits_for_inspection_is_not_waited_for(self, alone):
        ((request, _),) = out(alone)
        alone.feed(completed(request, A))
        self.quarantined(alone)
        assert not out(alone)

    def test_quarantined_worker_is_probed_after_its_time_one_by_one(self, alone):
        self.quarantined(alone)
        assert not [p for at in range(10, 600, 10) for p in alone.feed(TICK, key=None, at=at)]
        said = [p for at in range(600, 640, 10) for p in alone.feed(TICK, key=None, at=at)]
        assert [one.probe for one in said] == [True]

    def test_quarantine_outlasts_a_restart_and_ends_with_release(self, alone):
        before = out(alone)
        assert not self.quarantined(alone, "selfplay_worker@liar")
        assert out(alone) == before, "it is unknown"
        self.quarantined(alone)
        assert not alone.feed(ready_of(A), key=None, at=2)
        (request,) = alone.feed(NodeReleased(worker=A, reason="x"), key=None, at=3) or alone.feed(TICK, key=None, at=60)
        assert not request.probe

    def test_probe_makes_no_configuration_wait(self):
        driven = scheduler_of(A, B)
        self.quarantined(driven, A, seconds=0.0)
        driven.feed(TICK, key=None, at=20)
        asked = driven.feed(distributed(), at=21)
        assert sorted((one.worker, one.probe) for one in asked) == [(A, True), (B, False)]
        probe = next(request for request, worker in out(driven) if worker == A)
        driven.feed(completed(probe, A, probe=True), at=22)
        driven.feed(NodeProbed(request_id=probe, worker=A, shard="c" * 64, score=0.9, error=None), at=23)
        assert probe not in dict(out(driven))
        ((request, _),) = out(driven)
        said = driven.feed(completed(request, B), good(request, B, rows=NEED - 1), at=24)
        assert B in [one.worker for one in of(said, SelfplayRequested)], "a probe's rows do not count"
