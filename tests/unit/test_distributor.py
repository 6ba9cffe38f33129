"""Distributor: which checkpoints may be deleted, and when."""

import shlex

import pytest
from builders import EVIDENCE, ready, rejected, rolled_back, training_failed, unrated
from driving import KEY, OTHER_KEY, DrivenWorker, distributed, run_settings
from leagues import model

from flyball.app.core import Elo, FlyballError
from flyball.app.engine import JobFailed
from flyball.app.events import (
    CheckpointAdded,
    CheckpointRetired,
    ClockTick,
    DaemonStopped,
    DistributionFailed,
    DistributionLate,
    ModelCached,
    ModelPromoted,
    NodeLost,
    NodeReturned,
    RollbackRequested,
    SelfplayFailed,
)
from flyball.app.job_specs import DistributionResult
from flyball.app.store import DamagedBlob
from flyball.daemons.distribution import KEPT, OVERDUE, SPARED, Distributor

PLAY_FAILED = SelfplayFailed(request_id="r", worker="selfplay_worker@laptop", error="damaged")
TICK = ClockTick(period_seconds=10)


def promotion(step: int) -> ModelPromoted:
    return ModelPromoted(model=model(step), previous=None, step=step, elo=Elo(0.0), evidence=EVIDENCE)


def promote(worker: DrivenWorker, step: int) -> list[str]:
    """Promote a model, distribute it, and return the deletions."""
    worker.feed(promotion(step))
    return distribute(worker, step)


def go_back(worker: DrivenWorker, bad: int, step: int) -> list[str]:
    """Roll back to a model, distribute it, and return the deletions."""
    worker.feed(rolled_back(model(bad), model(step), step))
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


@pytest.mark.parametrize(("member", "deleted"), [(False, [0, 1, 2]), (True, [1, 2])])
def test_latest_promoted_models_and_league_members_are_kept(member, deleted):
    worker = DrivenWorker(Distributor)
    first = promote(worker, 0)
    if member:
        enter(worker, 0)
    discarded = [first, *(promote(worker, step) for step in range(1, KEPT + len(deleted) + member))]
    assert discarded == [[]] * (KEPT + member) + [[model(step)] for step in deleted]


@pytest.fixture
def old_member() -> DrivenWorker:
    """Return a distributor with a league of one model, and as many later champions as are kept."""
    worker = DrivenWorker(Distributor)
    promote(worker, 0)
    enter(worker, 0)
    for step in range(1, KEPT + 1):
        promote(worker, step)
    return worker


@pytest.mark.parametrize(("back", "deleted"), [(False, [False, True, False, False]), (True, [False] * 4)])
def test_who_leaves_the_league_is_deleted_two_promotions_later(old_member, back, deleted):
    """Unless it comes back meanwhile."""
    leave(old_member, 0)
    if back:
        enter(old_member, 0)
    later = [promote(old_member, step) for step in range(KEPT + 1, KEPT + 5)]
    assert [model(0) in discarded for discarded in later] == deleted


def test_league_member_rejected_again_is_kept(old_member):
    for step in (0, 99):
        old_member.feed(rejected(model(step), model(9), 0))
    assert promote(old_member, KEPT + 1) == [model(99), model(1)]


def test_retired_model_among_the_latest_stays_as_long_as_they(champion):
    enter(champion, 0)
    leave(champion, 0)
    discarded = [promote(champion, step) for step in range(1, KEPT + 1)]
    assert discarded == [[]] * (KEPT - 1) + [[model(0)]]


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


def reject(worker: DrivenWorker, count: int, first: int = 1) -> list[str]:
    steps = range(first, first + count)
    for step in steps:
        worker.feed(rejected(model(step), model(0), step))
    return [model(step) for step in steps]


@pytest.fixture
def champion() -> DrivenWorker:
    worker = DrivenWorker(Distributor)
    promote(worker, 0)
    return worker


def test_rejected_candidates_are_deleted_except_the_latest(champion):
    jobs = {}
    for step in range(1, 10 * SPARED):
        reject(champion, 1, step)
        jobs |= {job.id: job for job in champion.jobs()}
        row = champion.rows[KEY]
        assert len(row.superseded) + len(row.overdue) < OVERDUE + 2 * SPARED
    specs = [job.parts[0] for job in jobs.values()]
    assert {spec["model"] for spec in specs} == {None}
    assert {name for spec in specs for name in spec["discard"]} == {model(step) for step in range(1, 8 * SPARED + 1)}


def test_deletion_reports_nothing_and_is_repeated_if_it_fails(champion):
    refused = reject(champion, 2 * SPARED - 1)
    assert not champion.jobs()
    refused += reject(champion, 1, 2 * SPARED)
    (job,) = champion.jobs()
    assert champion.worker.completed(job, DistributionResult(), 0.1) == ()
    assert champion.worker.failed(job, JobFailed("f", "OSError", "disk full", hint="", trace="")) == ()
    reject(champion, SPARED, 2 * SPARED + 1)
    (job,) = champion.jobs()
    assert job.parts[0]["discard"] == refused


def test_candidates_are_deleted_with_a_model_being_distributed(champion):
    refused = reject(champion, 2 * SPARED)
    assert promote(champion, 2 * SPARED + 1) == refused, "what was not deleted yet"
    assert not champion.jobs()
    champion.feed(promotion(99))
    refused = reject(champion, 2 * SPARED, 100)
    assert distribute(champion, 99) == refused


class TestFailure:
    """The current model of one configuration cannot be read."""

    @pytest.fixture
    def broken(self) -> DrivenWorker:
        worker = DrivenWorker(Distributor, run_settings(KEY, OTHER_KEY))
        worker.feed(promotion(1), KEY)
        worker.feed(promotion(2), OTHER_KEY)
        return worker

    @staticmethod
    def fail(worker: DrivenWorker) -> DistributionFailed:
        job, *_ = worker.jobs()
        (fact,) = worker.worker.failed(job, FlyballError("There is no such blob."))
        worker.feed(fact, job.cause.subject)
        return fact

    def test_failed_distribution_is_retried_with_backoff(self, broken):
        broken.feed(distributed(model(2), 2), OTHER_KEY)
        waits, ids = [], set()
        for _ in range(9):
            waits.append(self.fail(broken).retry_seconds)
            failed_at = broken.position
            assert not broken.jobs()
            while not broken.jobs():
                broken.position += 9
                broken.feed(TICK, None)
            assert waits[-1] <= broken.position - failed_at <= waits[-1] + 10
            ids |= {job.id for job in broken.jobs()}
        assert waits == [30, 60, 120, 240, 480, 960, 1800, 1800, 1800]
        assert len(ids) == 9, "each attempt's facts have ids of their own"
        broken.feed(distributed(model(1), 1))
        broken.feed(promotion(3))
        assert self.fail(broken).attempt == 1, "success forgets failures"

    def test_unreadable_model_leaves_others_and_may_go_back(self, broken):
        fact = self.fail(broken)
        assert (fact.model, fact.step, fact.attempt) == (model(1), 1, 1)
        assert "no such blob" in fact.error
        (other,) = broken.jobs()
        assert other.cause.subject == OTHER_KEY
        broken.feed(rolled_back(model(1), model(0)))
        assert model(0) in [job.parts[0]["model"] for job in broken.jobs()], "at once"


def lost(model_step: int) -> JobFailed:
    text = f"{model(model_step)} has changed."
    return JobFailed("distribute", "DamagedBlob", text, hint="", trace="", code=DamagedBlob.code)


class TestDamage:
    """The store has lost the current model, the third of three champions."""

    @pytest.fixture
    def damaged(self) -> DrivenWorker:
        worker = DrivenWorker(Distributor)
        promote(worker, 0)
        promote(worker, 1)
        worker.feed(promotion(2))
        return worker

    @pytest.fixture
    def later(self, damaged) -> DrivenWorker:
        """Return the distributor 300 s after it distributed the model."""
        damaged.feed(distributed(model(2), 2))
        damaged.position += 300
        return damaged

    @staticmethod
    def retry(worker: DrivenWorker, seconds: int = 40) -> None:
        for _ in range(seconds // 10):
            worker.position += 9
            worker.feed(TICK, None)

    @staticmethod
    def attempt(worker: DrivenWorker, *readable: int) -> DistributionFailed:
        """Run the job over a store that has only some champions."""
        (job,) = worker.jobs()
        steps = {model(step): step for step in range(3)}
        wanted = [steps[part["model"]] for part in job.parts]
        parts = [DistributionResult() if step in readable else lost(step) for step in wanted]
        try:
            job.gather(parts)
        except FlyballError as error:
            (fact,) = worker.worker.failed(job, error)
            worker.feed(fact)
            return fact
        pytest.fail("the current model was read")

    def test_lost_model_names_latest_champion_that_reads(self, damaged):
        first = self.attempt(damaged, 0, 1)
        assert (first.damaged, first.readable) == (True, None), "one attempt may have met a store that was away"
        for readable in ((0, 1), (0,), ()):
            self.retry(damaged, 130)
            fact = self.attempt(damaged, *readable)
            assert (fact.damaged, fact.readable) == (True, model(max(readable)) if readable else None)
        assert "No earlier champion can be read" in fact.error

    def test_lost_model_has_a_remedy_to_paste(self, damaged):
        command = shlex.split(self.attempt(damaged, 0).error.partition("before: ")[2])
        assert command[:3] == ["flyball", "emit", "ROLLBACK_REQUESTED"]
        assert RollbackRequested.model_validate_json(command[3]).model == model(2)
        assert command[4:] == ["--config-key", KEY]

    def test_failure_of_the_store_itself_is_no_damage(self, damaged):
        (job,) = damaged.jobs()
        (fact,) = damaged.worker.failed(job, JobFailed("distribute", "OSError", "no route", hint="", trace=""))
        assert (fact.damaged, fact.readable) == (False, None)

    @pytest.mark.parametrize("fact", [PLAY_FAILED, training_failed("r"), unrated(model(9))], ids=lambda f: f.event_name)
    def test_failed_work_verifies_the_distributed_model(self, later, fact):
        assert not later.jobs()
        later.feed(fact)
        (job,) = later.jobs()
        assert [part["model"] for part in job.parts] == [model(2)]
        assert later.worker.completed(job, DistributionResult(), 0.1) == (
            ModelCached(model=model(2), step=2, node="laptop"),
        )

    def test_sound_model_is_verified_once_in_a_while(self, later):
        found = 0
        for _ in range(60):
            later.position += 9
            later.feed(PLAY_FAILED)
            for job in later.jobs():
                found += 1
                later.feed(later.worker.completed(job, DistributionResult(), 0.1)[0])
        assert found == 2

    def test_restored_blob_ends_the_search(self, later):
        later.feed(PLAY_FAILED)
        self.attempt(later)
        self.retry(later)
        (job,) = later.jobs()
        later.feed(later.worker.completed(job, job.gather([DistributionResult(), lost(1), lost(0)]), 0.1)[0])
        assert not later.jobs()
        assert promote(later, 3) == []


class TestNodes:
    """Distributors on the head, laptop, and beside it."""

    @staticmethod
    def on(node: str, *others: str, distributes: bool = False) -> DrivenWorker:
        """Return the distributor on a node; the broker is on laptop, and ``others`` have distributors, too."""
        worker = DrivenWorker(Distributor, node=node)
        worker.feed(ready("broker", capacity=0), None)
        for other in (node, *others):
            worker.feed(ready("distribution", other), None)
        worker.feed(promotion(0))
        if distributes:
            worker.feed(distributed(model(0), 0))
        return worker

    @staticmethod
    def late(worker: DrivenWorker, seconds: int = 70) -> list[DistributionLate]:
        found = []
        for _ in range(seconds // 10):
            worker.position += 9
            found += worker.fed(TICK, None)
        return found

    def test_another_node_waits_for_the_head_or_becomes_it(self):
        worker = self.on("w1")
        assert not worker.jobs()
        worker.feed(ready("broker", "w1", capacity=0), None)
        (job,) = worker.jobs()
        assert worker.worker.completed(job, DistributionResult(), 0.1)[0].nodes == ("w1",)

    def test_another_node_deletes_nothing(self):
        worker, cached = self.on("w1"), ModelCached(model=model(0), step=0, node="w1")
        reject(worker, 2 * SPARED)
        assert not worker.jobs()
        worker.feed(distributed(model(0), 0))
        (job,) = worker.jobs()
        assert job.parts[0]["discard"] == []
        assert worker.worker.completed(job, DistributionResult(), 0.1) == (cached,)
        worker.feed(cached)
        reject(worker, 2 * SPARED)
        assert not worker.jobs(), "deleting overdue candidates is the head's, too"

    def test_own_acknowledgement_of_the_model_ends_a_node_s_job(self):
        worker, later = self.on("w1", distributes=True), self.on("w1", distributes=True)
        worker.feed(ModelCached(model=model(0), step=0, node="w2"))
        assert worker.jobs()
        worker.feed(ModelCached(model=model(0), step=0, node="w1"))
        assert not worker.jobs()
        later.feed(promotion(1))
        later.feed(distributed(model(1), 1))
        later.feed(ModelCached(model=model(0), step=0, node="w1"))
        assert [job.request.model for job in later.jobs()] == [model(1)]

    def test_a_node_s_failure_pauses_that_node_alone(self):
        first, second = (self.on(node, distributes=True) for node in ("w1", "w2"))
        assert first.worker.id_namespace != second.worker.id_namespace
        (job,) = first.jobs()
        (fact,) = first.worker.failed(job, FlyballError("There is no such blob."))
        assert fact.node == "w1"
        for worker in (first, second):
            worker.feed(fact)
        assert not first.jobs()
        assert second.jobs()

    def test_caches_keep_the_models_that_are_played_now_and_next(self):
        worker = self.on("laptop", distributes=True)
        worker.feed(promotion(1))
        (job,) = worker.jobs()
        assert job.parts[0]["needed"] == sorted([model(0), model(1)])

    def test_late_nodes_are_reported_once_by_every_distributor(self):
        found = []
        for nodes in (("laptop", "w1", "w2"), ("w1", "laptop", "w2")):
            worker = self.on(*nodes, distributes=True)
            worker.feed(ModelCached(model=model(0), step=0, node="w1"))
            assert not self.late(worker, 50)
            found.append(self.late(worker, 200))
        ((first,), (second,)) = found
        assert first == second
        assert (first.model, first.nodes) == (model(0), ("w2",))
        assert first.seconds >= 60

    def test_nodes_that_are_gone_are_not_late(self):
        worker = self.on("laptop", "w1", "w2", "w3", distributes=True)
        worker.feed(DaemonStopped(daemon="distribution", node="w1", position=0), None)
        worker.feed(NodeLost(daemon="distribution", node="w2", silent_seconds=30.0), None)
        worker.feed(NodeLost(daemon="training", node="w3", silent_seconds=30.0), None)
        assert [fact.nodes for fact in self.late(worker)] == [("w3",)]
        worker.feed(NodeReturned(daemon="distribution", node="w2", silent_seconds=130.0), None)
        assert not self.late(worker, 50), "it has a minute"
        assert [fact.nodes for fact in self.late(worker)] == [("w2",)]

    @pytest.mark.parametrize(("nodes", "distributes"), [(("laptop", "w1"), False), (("laptop",), True)])
    def test_head_that_verifies_or_is_alone_reports_nobody(self, nodes, distributes):
        assert not self.late(self.on(*nodes, distributes=distributes))
