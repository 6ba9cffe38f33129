"""FeedbackLoopController distinguishes a worker's faults from its configuration's (ADR-010)."""

import numpy as np
import pytest
from driving import KEY, OTHER_KEY, Driven, DrivenWorker, parity, played, run_settings, scored
from node_deliveries import false_alarms_and_delays
from scenario_events import asked

from flyball.app.controllers import FeedbackLoopController, TrainingTrigger
from flyball.app.engine import JobFailed
from flyball.app.events import (
    NodeProbed,
    NodeQuarantined,
    NodeReleased,
    ParityChecked,
    QualityDegraded,
    TrainingBlockedByQuality,
    TrainingRequested,
    TrainingUnblocked,
)
from flyball.app.job_specs import InspectionResult
from flyball.app.store import DamagedBlob
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.quality_monitor import QualityMonitor
from flyball.daemons.selfplay_worker import SelfplayWorker

A, B, C = "selfplay_worker@a", "selfplay_worker@b", "selfplay_worker@c"
ALONE = "no other worker's games show that the rules are as before"
NODES = run_settings().feedback.nodes
INSPECTED = InspectionResult(checked=16, failures=("game 0",), score=0.9, components={})


@pytest.fixture
def loop() -> Driven:
    return Driven(FeedbackLoopController, run_settings(KEY, OTHER_KEY))


def broken(worker: str | None, failures: int = 16) -> ParityChecked:
    return parity(failures, worker)


def shard(worker: str | None, score: float = 0.95):
    found = scored(score)
    return found.replace(shard=found.shard.replace(worker=worker))


def probe(worker: str, score: float | None = 0.95) -> NodeProbed:
    return NodeProbed(request_id="p", worker=worker, shard="c" * 64, score=score, error=None if score else "parity")


def verdicts(said: list) -> list[tuple[type, str | None]]:
    """Return decisions about quarantines and blocks, each with its worker."""
    kinds = (NodeQuarantined, NodeReleased, TrainingBlockedByQuality, TrainingUnblocked)
    return [(type(one), getattr(one, "worker", None)) for one in said if isinstance(one, kinds)]


class TestParity:
    def test_broken_games_of_one_of_two_workers_quarantine_it(self, loop):
        loop.feed(shard(A), shard(B))
        (decided,) = loop.feed(broken(A, 3))
        assert (decided.worker, decided.lasts_seconds) == (A, NODES.quarantine_seconds)
        assert decided.reason == (
            f"3 of 16 games of {KEY} differ from the rules, and another worker's follow them, so only this worker stops"
        )
        assert not verdicts(loop.feed(broken(A), shard(A, 0.1))), "a late shard of its blocks nothing"

    @pytest.mark.parametrize(
        ("worker", "key", "shards", "why"),
        [
            (A, KEY, (A, A), ALONE),
            (None, KEY, (None, B), "nobody knows whose they are"),
            (A, OTHER_KEY, (B,), ALONE),
        ],
    )
    def test_broken_games_that_no_other_acquits_block_training(self, loop, worker, key, shards, why):
        """The worker is the only one, without a name, or the only one of its configuration."""
        loop.feed(*map(shard, shards), key=key)
        said = loop.feed(broken(worker))
        assert verdicts(said) == [(TrainingBlockedByQuality, None)]
        assert said[0].reason == f"16 of 16 games differ from the rules, and {why}"
        assert verdicts(loop.feed(*[broken(worker, 0)] * 3)) == [(TrainingUnblocked, None)]

    def test_loop_most_workers_break_rules_blocks_training_not_nodes(self, loop):
        loop.feed(shard(A), shard(B), shard(C))
        (quarantined,) = loop.feed(broken(A))
        assert quarantined.reason.endswith("and 2 other workers' follow them, so only this worker stops")
        said = loop.feed(broken(B))
        assert verdicts(said) == [(TrainingBlockedByQuality, None), (NodeReleased, A)]
        assert said[0].reason == "16 of 16 games differ from the rules, as do the latest of 2 of 3 workers"


class TestScore:
    @staticmethod
    def rounds(loop: Driven, scores: dict[str, float], count: int, start: int = 0) -> list:
        said = []
        for turn in range(start, start + count):
            for number, (worker, score) in enumerate(scores.items()):
                said += loop.feed(shard(worker, score), at=10.0 * turn + number)
        return verdicts(said)

    def test_shards_far_below_all_others_in_a_row_quarantine_worker(self, loop):
        assert not self.rounds(loop, {B: 0.95, C: 0.9, A: 0.71}, 50), "a little below is no reason"
        assert not self.rounds(loop, {B: 0.95, C: 0.9, A: 0.69}, NODES.bad_shards - 1, start=50)
        assert self.rounds(loop, {B: 0.95, C: 0.9, A: 0.69}, 1, start=59) == [(NodeQuarantined, A)]

    def test_good_shard_between_bad_ones_restarts_the_count(self, loop):
        for turn in range(10):
            assert not self.rounds(loop, {B: 0.95, A: 0.1 if turn % NODES.bad_shards else 0.95}, 1, start=turn)

    @pytest.mark.parametrize("workers", [(A, B, C), (A,)])
    def test_data_that_is_poor_everywhere_accuses_nobody(self, loop, workers):
        self.rounds(loop, dict.fromkeys(workers, 0.95), 10)
        assert not self.rounds(loop, dict.fromkeys(workers, 0.1), 10, start=10)

    def test_shards_from_before_are_no_measure(self, loop):
        """The other worker has left, and all data has become poor since."""
        self.rounds(loop, {B: 0.95, A: 0.95}, 3)
        self.rounds(loop, {A: 0.95}, NODES.bad_shards, start=3)
        assert not self.rounds(loop, {A: 0.1}, 10, start=9)


class TestProbation:
    @pytest.fixture
    def convicted(self, loop) -> Driven:
        loop.feed(shard(A), shard(B), broken(A))
        return loop

    def test_good_probes_in_a_row_end_the_quarantine(self, convicted):
        said = [verdicts(convicted.feed(probe(A))) for _ in range(NODES.good_probes)]
        assert said == [*[[]] * (NODES.good_probes - 1), [(NodeReleased, A)]]
        assert not convicted.feed(probe(A)), "it is free"

    @pytest.mark.parametrize("score", [None, 0.3])
    def test_bad_probe_doubles_the_quarantine(self, convicted, score):
        lasts = []
        for _ in range(8):
            convicted.feed(*[probe(A)] * (NODES.good_probes - 1))
            (again,) = convicted.feed(probe(A, score))
            lasts.append(again.lasts_seconds)
        assert lasts == [1200, 2400, 4800, 9600, 19_200, 21_600, 21_600, 21_600]

    def test_probe_is_compared_with_what_others_deliver_meanwhile(self, loop):
        TestScore.rounds(loop, {B: 0.95, A: 0.6}, NODES.bad_shards)
        assert verdicts(loop.feed(shard(B), probe(A, 0.6), at=1000)) == [(NodeQuarantined, A)]

    def test_worker_whose_others_have_left_is_released_for_good(self, loop):
        TestScore.rounds(loop, {B: 0.95, A: 0.6}, NODES.bad_shards)
        said = [p for _ in range(NODES.good_probes) for p in loop.feed(probe(A, 0.6), at=1000)]
        assert verdicts(said) == [(NodeReleased, A)]
        assert not TestScore.rounds(loop, {A: 0.6}, 10, start=110)

    def test_its_own_decision_is_not_taken_for_an_operators(self, loop):
        """The quarantine for broken rules ends once others break them, too."""
        loop.late = True
        loop.feed(shard(A), shard(B), shard(C))
        assert not loop.record(*loop.envelopes(broken(A)))
        assert (NodeReleased, A) in verdicts(loop.feed(broken(B)))

    def test_quarantine_and_release_by_hand_are_adopted(self, loop):
        loop.feed(NodeQuarantined(worker=A, lasts_seconds=60, reason="by hand"), key=None)
        said = [p for _ in range(NODES.good_probes) for p in loop.feed(probe(A))]
        assert verdicts(said) == [(NodeReleased, A)]
        loop.feed(shard(A), shard(B), broken(A))
        loop.feed(NodeReleased(worker=A, reason="by hand"), key=None)
        assert not loop.feed(probe(A, None)), "it is in no quarantine any more"


class TestOthersObey:
    def test_trigger_trains_on_no_row_of_quarantined_worker(self):
        trigger = Driven(TrainingTrigger)
        rows = run_settings().config(KEY).rows_per_training
        trigger.settle()
        parts = [
            found.replace(shard=found.shard.replace(worker=worker, key=key * 64))
            for found, worker, key in ((scored(rows=rows - 1), A, "1"), (scored(rows=rows), B, "2"))
        ]
        trigger.feed(parts[0])
        trigger.feed(NodeQuarantined(worker=A, lasts_seconds=60, reason="x"), key=None)
        (request,) = trigger.feed(parts[1])
        assert isinstance(request, TrainingRequested)
        assert [one.worker for one in request.shards] == [B]

    def test_worker_drops_its_requests_when_quarantined(self):

        worker = DrivenWorker(SelfplayWorker)
        identity: WorkerIdentity = worker.worker.identity
        worker.feed(asked(identity.name))
        worker.feed(NodeQuarantined(worker="selfplay_worker@another", lasts_seconds=60, reason="x"), None)
        assert worker.jobs()
        worker.feed(NodeQuarantined(worker=identity.name, lasts_seconds=60, reason="x"), None)
        assert not worker.jobs()

    def test_monitor_inspects_no_shard_of_quarantined_worker(self):
        monitor = DrivenWorker(QualityMonitor, run_settings(KEY, OTHER_KEY))
        monitor.feed(played(1, shard="1" * 64))
        monitor.feed(played(2, shard="2" * 64), OTHER_KEY)
        monitor.feed(NodeQuarantined(worker="selfplay_worker@laptop", lasts_seconds=60, reason="x"), None)
        assert not monitor.jobs()
        assert [monitor.rows[key].shelf.spent for key in (KEY, OTHER_KEY)] == [("1" * 64,), ("2" * 64,)]

    @pytest.mark.parametrize("failures", [(), ("game 0",)])
    def test_probe_is_reported_as_one_and_as_nothing_else(self, failures):
        monitor = DrivenWorker(QualityMonitor)
        monitor.feed(played(1).replace(probe=True))
        (job,) = monitor.jobs()
        (fact,) = monitor.worker.completed(job, INSPECTED.replace(failures=failures), 0.1)
        assert isinstance(fact, NodeProbed)
        assert fact.score == (None if failures else 0.9)
        error = JobFailed(job.function, "DamagedBlob", "no", hint="", trace="", code=DamagedBlob.code)
        (unfit,) = monitor.worker.failed(job, error)
        assert (unfit.score, unfit.error) == (None, "DamagedBlob: no")
        monitor.feed(fact)
        assert not monitor.jobs()
        assert monitor.rows[KEY].shelf.spent == (fact.shard,), "nobody trains on it"

    def test_verdicts_of_ordinary_shards_name_their_worker(self):
        monitor = DrivenWorker(QualityMonitor)
        monitor.feed(played(1))
        (job,) = monitor.jobs()
        checked, unfit = monitor.worker.completed(job, INSPECTED, 0.1)
        assert isinstance(unfit, QualityDegraded)
        assert checked.worker == unfit.worker == "selfplay_worker@laptop"


def test_false_alarms_are_rare_and_bad_nodes_soon_found():
    """Simulate 36 nodes with 12 configurations for a week.

    Scores are 5 times as noisy as modelled, and configurations are poor now and then.
    """
    alarms, shards, delays = false_alarms_and_delays(np.random.default_rng(1), days=7, noise_sd=0.1)
    assert shards > 20_000
    assert alarms <= 1
    assert np.median(delays) == NODES.bad_shards
