"""Distributor: which checkpoints may be deleted, and when."""

import pytest
from driving import KEY, OTHER_KEY, DrivenWorker, distributed, run_settings
from leagues import model

from app.core import Elo, FlyballError
from app.engine import JobFailed
from app.events import (
    CheckpointAdded,
    CheckpointRetired,
    ClockTick,
    DaemonReady,
    DaemonStopped,
    DistributionFailed,
    DistributionLate,
    EvaluationFailed,
    Evidence,
    ModelCached,
    ModelPromoted,
    ModelRolledBack,
    NodeLost,
    NodeReturned,
    PromotionRejected,
    SelfplayFailed,
    TrainingFailed,
)
from daemons.distribution import KEPT, OVERDUE, SPARED, Distributor

PLAY_FAILED = SelfplayFailed(request_id="r", worker="selfplay_worker@laptop", error="damaged")
TRAINING_FAILED = TrainingFailed(request_id="r", reason="bad_data", error="damaged")
EVALUATION_FAILED = EvaluationFailed(request_id="r", purpose="rating", model=model(9), error="damaged")
EVIDENCE = Evidence(evaluation_id="e", statistic="s", value=0.0, threshold=0.0, games=1, elo=Elo(0.0), elo_stderr=1.0)


def promotion(step: int) -> ModelPromoted:
    return ModelPromoted(model=model(step), previous=None, step=step, elo=Elo(0.0), evidence=EVIDENCE)


def promote(worker: DrivenWorker, step: int) -> list[str]:
    """Promote a model, distribute it, and return the deletions."""
    worker.feed(promotion(step))
    return distribute(worker, step)


def go_back(worker: DrivenWorker, bad: int, step: int) -> list[str]:
    """Roll back to a model, distribute it, and return the deletions."""
    worker.feed(ModelRolledBack(from_model=model(bad), to_model=model(step), step=step, reason="x"))
    return distribute(worker, step)


def distribute(worker: DrivenWorker, step: int) -> list[str]:
    (job,) = worker.jobs()
    worker.feed(distributed(model(step), step))
    return job.parts[0]["discard"]


def enter(worker: DrivenWorker, step: int) -> None:
    roles = ("recent",)
    worker.feed(
        CheckpointAdded(model=model(step), parent=None, step=step, elo=Elo(0.0), elo_stderr=1.0, games=1, roles=roles)
    )


def leave(worker: DrivenWorker, step: int) -> None:
    worker.feed(CheckpointRetired(model=model(step), step=step, reason="expired"))


def test_without_a_league_the_latest_promoted_models_are_kept():
    worker = DrivenWorker(Distributor)
    discarded = [promote(worker, step) for step in range(KEPT + 3)]
    assert discarded == [[]] * KEPT + [[model(0)], [model(1)], [model(2)]]


def test_members_of_the_league_are_kept_however_old():
    worker = DrivenWorker(Distributor)
    promote(worker, 0)
    enter(worker, 0)
    discarded = [promote(worker, step) for step in range(1, KEPT + 3)]
    assert discarded == [[]] * KEPT + [[model(1)], [model(2)]]


def test_who_leaves_the_league_is_deleted_two_promotions_later():
    worker = DrivenWorker(Distributor)
    promote(worker, 0)
    enter(worker, 0)
    for step in range(1, KEPT + 1):
        promote(worker, step)
    leave(worker, 0)
    assert model(0) not in promote(worker, KEPT + 1)
    assert model(0) in promote(worker, KEPT + 2)
    assert model(0) not in promote(worker, KEPT + 3)


def test_retired_model_among_the_latest_stays_as_long_as_they():
    worker = DrivenWorker(Distributor)
    promote(worker, 0)
    enter(worker, 0)
    leave(worker, 0)
    discarded = [promote(worker, step) for step in range(1, KEPT + 1)]
    assert discarded == [[]] * (KEPT - 1) + [[model(0)]]


def test_who_comes_back_meanwhile_is_kept():
    worker = DrivenWorker(Distributor)
    promote(worker, 0)
    enter(worker, 0)
    for step in range(1, KEPT + 1):
        promote(worker, step)
    leave(worker, 0)
    enter(worker, 0)
    assert all(model(0) not in promote(worker, step) for step in range(KEPT + 1, KEPT + 5))


def test_league_member_rejected_again_is_kept():
    worker = DrivenWorker(Distributor)
    promote(worker, 0)
    enter(worker, 0)
    for step in range(1, KEPT + 1):
        promote(worker, step)
    worker.feed(PromotionRejected(model=model(0), current=model(9), step=0, evidence=EVIDENCE))
    worker.feed(PromotionRejected(model=model(99), current=model(9), step=0, evidence=EVIDENCE))
    assert promote(worker, KEPT + 1) == [model(99), model(1)]


def test_model_restored_before_its_deletion_is_kept():
    worker = DrivenWorker(Distributor)
    for step in range(KEPT):
        promote(worker, step)
    worker.feed(promotion(KEPT))  # model(0) waits to be deleted
    assert model(0) not in go_back(worker, KEPT, 0)
    later = [promote(worker, step) for step in range(KEPT + 1, 2 * KEPT + 1)]
    assert [model(0) in discarded for discarded in later] == [False] * (KEPT - 1) + [True]


def test_a_rollback_lets_nobody_go():
    worker = DrivenWorker(Distributor)
    for step in range(KEPT + 1):
        promote(worker, step)
        enter(worker, step)
    leave(worker, 0)
    assert [go_back(worker, bad, bad - 1) for bad in (KEPT, KEPT - 1)] == [[], []]
    assert [promote(worker, step) for step in (KEPT + 1, KEPT + 2)] == [[], [model(0)]]


def reject(worker: DrivenWorker, step: int, current: int) -> None:
    worker.feed(PromotionRejected(model=model(step), current=model(current), step=step, evidence=EVIDENCE))


def test_rejected_candidates_are_deleted_except_the_latest():
    worker = DrivenWorker(Distributor)
    promote(worker, 0)
    jobs = {}
    for step in range(1, 10 * SPARED):
        reject(worker, step, 0)
        jobs |= {job.id: job for job in worker.jobs()}
        row = worker.rows[KEY]
        assert len(row.superseded) + len(row.overdue) < OVERDUE + 2 * SPARED
    specs = [job.parts[0] for job in jobs.values()]
    assert {spec["model"] for spec in specs} == {None}
    assert {name for spec in specs for name in spec["discard"]} == {model(step) for step in range(1, 8 * SPARED + 1)}


def test_models_of_a_failed_deletion_are_deleted_with_the_next():
    worker = DrivenWorker(Distributor)
    promote(worker, 0)
    for step in range(1, 2 * SPARED + 1):
        reject(worker, step, 0)
    (failed,) = worker.jobs()
    assert worker.worker.failed(failed, JobFailed("f", "OSError", "disk full", hint="", trace="")) == ()
    for step in range(2 * SPARED + 1, 3 * SPARED + 1):
        reject(worker, step, 0)
    (job,) = worker.jobs()
    assert job.parts[0]["discard"] == [model(step) for step in range(1, 2 * SPARED + 1)]


def test_deleted_candidates_are_not_reported():
    worker = DrivenWorker(Distributor)
    promote(worker, 0)
    for step in range(1, 2 * SPARED):
        reject(worker, step, 0)
    assert not worker.jobs()
    reject(worker, 2 * SPARED, 0)
    (job,) = worker.jobs()
    assert worker.worker.completed(job, {}) == ()


def test_what_a_promotion_finds_undeleted_is_deleted_with_it():
    worker = DrivenWorker(Distributor)
    promote(worker, 0)
    for step in range(1, 2 * SPARED + 1):
        reject(worker, step, 0)
    kept_out = [model(step) for step in range(1, 2 * SPARED + 1)]
    assert promote(worker, 2 * SPARED + 1) == kept_out
    assert not worker.jobs()


def test_while_a_model_is_distributed_candidates_wait_for_that():
    worker = DrivenWorker(Distributor)
    worker.feed(promotion(0))
    for step in range(1, 2 * SPARED + 1):
        reject(worker, step, 0)
    assert distribute(worker, 0) == [model(step) for step in range(1, 2 * SPARED + 1)]


class TestFailure:
    """The current model of one configuration cannot be read."""

    @staticmethod
    def broken() -> DrivenWorker:
        worker = DrivenWorker(Distributor, run_settings(KEY, OTHER_KEY))
        worker.feed(promotion(1), KEY)
        worker.feed(promotion(2), OTHER_KEY)
        return worker

    @staticmethod
    def fail(worker: DrivenWorker) -> DistributionFailed:
        """Fail the oldest distribution."""
        job, *_ = worker.jobs()
        (fact,) = worker.worker.failed(job, FlyballError("There is no such blob."))
        worker.feed(fact, job.cause.subject)
        return fact

    def test_unreadable_model_of_one_configuration_leaves_others(self):
        worker = self.broken()
        fact = self.fail(worker)
        assert (fact.model, fact.step, fact.attempt) == (model(1), 1, 1)
        assert "no such blob" in fact.error
        (other,) = worker.jobs()
        assert other.cause.subject == OTHER_KEY

    def test_failed_distribution_is_retried_with_backoff(self):
        worker = self.broken()
        worker.feed(distributed(model(2), 2), OTHER_KEY)
        waits, ids = [], set()
        for _ in range(9):
            waits.append(self.fail(worker).retry_seconds)
            failed_at = worker.position
            assert not worker.jobs()
            while not worker.jobs():
                worker.position += 9
                worker.feed(ClockTick(period_seconds=10), None)
            assert waits[-1] <= worker.position - failed_at <= waits[-1] + 10
            ids |= {job.id for job in worker.jobs()}
        assert waits == [30, 60, 120, 240, 480, 960, 1800, 1800, 1800]
        assert len(ids) == 9, "each attempt's facts have ids of their own"

    def test_retried_distribution_that_succeeds_forgets_failures(self):
        worker = self.broken()
        worker.feed(distributed(model(2), 2), OTHER_KEY)
        self.fail(worker)
        worker.feed(distributed(model(1), 1))
        worker.feed(promotion(3))
        assert self.fail(worker).attempt == 1

    def test_rollback_of_unreadable_model_is_distributed_at_once(self):
        worker = self.broken()
        self.fail(worker)
        worker.feed(ModelRolledBack(from_model=model(1), to_model=model(0), step=0, reason="unreadable"))
        assert model(0) in [job.parts[0]["model"] for job in worker.jobs()]


def lost(model_step: int) -> JobFailed:
    return JobFailed("distribute", "DamagedBlob", f"{model(model_step)} has changed.", hint="", trace="")


class TestDamage:
    """The store has lost the current model, the third of three champions."""

    @staticmethod
    def damaged(*, distributed_before: bool) -> DrivenWorker:
        worker = DrivenWorker(Distributor)
        promote(worker, 0)
        promote(worker, 1)
        worker.feed(promotion(2))
        if distributed_before:
            worker.feed(distributed(model(2), 2))
        return worker

    @staticmethod
    def retry(worker: DrivenWorker, seconds: int = 40) -> None:
        for _ in range(seconds // 10):
            worker.position += 9
            worker.feed(ClockTick(period_seconds=10), None)

    @staticmethod
    def attempt(worker: DrivenWorker, *readable: int) -> DistributionFailed:
        """Run the job over a store that has only some champions."""
        (job,) = worker.jobs()
        steps = {model(step): step for step in range(3)}
        wanted = [steps[part["model"]] for part in job.parts]
        parts = [{} if step in readable else lost(step) for step in wanted]
        try:
            job.gather(parts)
        except FlyballError as error:
            (fact,) = worker.worker.failed(job, error)
            worker.feed(fact)
            return fact
        pytest.fail("the current model was read")

    def test_lost_model_names_latest_champion_that_reads(self):
        worker = self.damaged(distributed_before=False)
        first = self.attempt(worker, 0, 1)
        assert (first.damaged, first.readable) == (True, None), "one attempt may have met a store that was away"
        self.retry(worker)
        assert self.attempt(worker, 0, 1).readable == model(1)
        self.retry(worker, 70)
        assert self.attempt(worker, 0).readable == model(0)

    def test_lost_store_names_no_champion(self):
        worker = self.damaged(distributed_before=False)
        self.attempt(worker)
        self.retry(worker)
        fact = self.attempt(worker)
        assert (fact.damaged, fact.readable) == (True, None)
        assert "No earlier champion can be read" in fact.error

    def test_failure_of_the_store_itself_is_no_damage(self):
        worker = self.damaged(distributed_before=False)
        (job,) = worker.jobs()
        (fact,) = worker.worker.failed(job, JobFailed("distribute", "OSError", "no route", hint="", trace=""))
        assert (fact.damaged, fact.readable) == (False, None)

    @pytest.mark.parametrize("fact", [PLAY_FAILED, TRAINING_FAILED, EVALUATION_FAILED], ids=lambda one: one.event_name)
    def test_failed_work_verifies_the_distributed_model(self, fact):
        worker = self.damaged(distributed_before=True)
        worker.position += 300
        assert not worker.jobs()
        worker.feed(fact)
        (job,) = worker.jobs()
        assert [part["model"] for part in job.parts] == [model(2)]
        assert worker.worker.completed(job, {}) == (ModelCached(model=model(2), step=2, node="laptop"),)

    def test_sound_model_is_verified_once_in_a_while(self):
        worker = self.damaged(distributed_before=True)
        worker.position += 300
        found = 0
        for _ in range(60):
            worker.position += 9
            worker.feed(PLAY_FAILED)
            for job in worker.jobs():
                found += 1
                worker.feed(worker.worker.completed(job, {})[0])
        assert found == 2

    def test_restored_blob_ends_the_search(self):
        worker = self.damaged(distributed_before=True)
        worker.position += 300
        worker.feed(PLAY_FAILED)
        self.attempt(worker)
        self.retry(worker)
        (job,) = worker.jobs()
        worker.feed(worker.worker.completed(job, job.gather([{}, lost(1), lost(0)]))[0])
        assert not worker.jobs()
        assert promote(worker, 3) == []


class TestNodes:
    """Distributors on the head, laptop, and beside it."""

    @staticmethod
    def on(node: str, *others: str) -> DrivenWorker:
        """Return the distributor on a node. The broker is on laptop; ``others`` are nodes with distributors, too."""
        worker = DrivenWorker(Distributor, node=node)
        worker.feed(DaemonReady(daemon="broker", node="laptop", position=0, capacity=0), None)
        for other in (node, *others):
            worker.feed(DaemonReady(daemon="distribution", node=other, position=0, capacity=1), None)
        worker.feed(promotion(0))
        return worker

    @staticmethod
    def late(worker: DrivenWorker, seconds: int = 70) -> list[DistributionLate]:
        """Return what ticks report in some seconds."""
        found = []
        for _ in range(seconds // 10):
            worker.position += 9
            found += worker.fed(ClockTick(period_seconds=10), None)
        return found

    def test_another_node_waits_for_the_head(self):
        worker = self.on("w1")
        assert not worker.jobs()
        worker.feed(distributed(model(0), 0))
        (job,) = worker.jobs()
        assert worker.worker.completed(job, {}) == (ModelCached(model=model(0), step=0, node="w1"),)

    def test_another_node_deletes_nothing(self):
        worker = self.on("w1")
        for step in range(1, 2 * SPARED + 1):
            reject(worker, step, 0)
        worker.feed(distributed(model(0), 0))
        assert [job.parts[0]["discard"] for job in worker.jobs()] == [[]]
        worker.feed(ModelCached(model=model(0), step=0, node="w1"))
        for step in range(1, 2 * SPARED + 1):
            reject(worker, step, 0)
        assert not worker.jobs(), "deleting overdue candidates is the head's, too"

    def test_acknowledgement_ends_a_node_s_job(self):
        worker = self.on("w1")
        worker.feed(distributed(model(0), 0))
        worker.feed(ModelCached(model=model(0), step=0, node="w2"))
        assert worker.jobs()
        worker.feed(ModelCached(model=model(0), step=0, node="w1"))
        assert not worker.jobs()

    def test_acknowledgement_of_an_earlier_model_counts_for_nothing(self):
        worker = self.on("w1")
        worker.feed(distributed(model(0), 0))
        worker.feed(promotion(1))
        worker.feed(distributed(model(1), 1))
        worker.feed(ModelCached(model=model(0), step=0, node="w1"))
        assert [job.request.model for job in worker.jobs()] == [model(1)]

    def test_facts_of_two_nodes_have_ids_of_their_own(self):
        assert self.on("w1").worker.id_namespace != self.on("w2").worker.id_namespace

    def test_a_node_s_failure_pauses_that_node_alone(self):
        first, second = self.on("w1"), self.on("w2")
        for worker in (first, second):
            worker.feed(distributed(model(0), 0))
        (job,) = first.jobs()
        (fact,) = first.worker.failed(job, FlyballError("There is no such blob."))
        assert fact.node == "w1"
        for worker in (first, second):
            worker.feed(fact)
        assert not first.jobs()
        assert second.jobs()

    def test_the_head_takes_over_when_it_has_another_name(self):
        worker = self.on("w1")
        assert not worker.jobs()
        worker.feed(DaemonReady(daemon="broker", node="w1", position=0, capacity=0), None)
        (job,) = worker.jobs()
        assert worker.worker.completed(job, {})[0].nodes == ("w1",)

    def test_caches_keep_the_models_that_are_played_now_and_next(self):
        worker = self.on("laptop")
        worker.feed(distributed(model(0), 0))
        worker.feed(promotion(1))
        (job,) = worker.jobs()
        assert job.parts[0]["needed"] == sorted([model(0), model(1)])

    def test_late_nodes_are_reported_once_by_every_distributor(self):
        workers = [self.on("laptop", "w1", "w2"), self.on("w1", "laptop", "w2")]
        found = []
        for worker in workers:
            worker.feed(distributed(model(0), 0))
            worker.feed(ModelCached(model=model(0), step=0, node="w1"))
            assert not self.late(worker, 50)
            found.append(self.late(worker, 200))
        ((first,), (second,)) = found
        assert first == second
        assert (first.model, first.nodes) == (model(0), ("w2",))
        assert first.seconds >= 60

    def test_nodes_that_are_gone_are_not_late(self):
        worker = self.on("laptop", "w1", "w2", "w3")
        worker.feed(distributed(model(0), 0))
        worker.feed(DaemonStopped(daemon="distribution", node="w1", position=0), None)
        worker.feed(NodeLost(daemon="distribution", node="w2", silent_seconds=30.0), None)
        worker.feed(NodeLost(daemon="training", node="w3", silent_seconds=30.0), None)
        assert [fact.nodes for fact in self.late(worker)] == [("w3",)]

    def test_a_node_that_returns_has_a_minute(self):
        worker = self.on("laptop", "w1")
        worker.feed(distributed(model(0), 0))
        worker.feed(NodeLost(daemon="distribution", node="w1", silent_seconds=30.0), None)
        assert not self.late(worker, 100)
        worker.feed(NodeReturned(daemon="distribution", node="w1", silent_seconds=130.0), None)
        assert not self.late(worker, 50)
        assert [fact.nodes for fact in self.late(worker)] == [("w1",)]

    def test_no_node_is_late_while_the_head_verifies(self):
        assert not self.late(self.on("laptop", "w1"))

    def test_one_machine_alone_is_never_late(self):
        worker = self.on("laptop")
        worker.feed(distributed(model(0), 0))
        assert not self.late(worker)
