"""The trainer: which shards it has deleted, and what it says of a training that failed."""

import pytest
from driving import NEW, OLD, DrivenWorker, played, scored, trained

import app.store
import app.training
from app.core import FlyballError
from app.engine import JobFailed, WorkerLost
from app.events import Payload, QualityDegraded, ShardRef, TrainingFailed, TrainingRequested
from app.runtime.work import Job, Trainer
from app.runtime.work.training import BAD_DATA, DIVERGED

FIRST, SECOND, THIRD = "1" * 64, "2" * 64, "3" * 64


@pytest.fixture
def trainer() -> DrivenWorker:
    return DrivenWorker(Trainer)


def ask(trainer: DrivenWorker, *shards: str, model: str = OLD) -> Job:
    """Ask for a training on shards and return its job."""
    refs = tuple(ShardRef(key=key, rows=9, games=1, model=model, seed=1) for key in shards)
    request = TrainingRequested(base_model=model, shards=refs, step=0, seed=1, learning_rate=0.1, epochs=1)
    trainer.feed(request)
    (job,) = trainer.jobs()
    return job


def done(trainer: DrivenWorker, job: Job) -> None:
    trainer.feed(trained().model_copy(update={"request_id": job.id}))
    assert not trainer.jobs()


def test_shards_are_deleted_with_the_training_after_the_one_that_used_them(trainer: DrivenWorker) -> None:
    for number, shard in enumerate((FIRST, SECOND)):
        trainer.feed(played(number, shard=shard))
    job = ask(trainer, FIRST, SECOND)
    assert job.parts[0]["discard"] == []
    done(trainer, job)
    trainer.feed(played(3, shard=THIRD))
    assert ask(trainer, THIRD).parts[0]["discard"] == [FIRST, SECOND]


@pytest.mark.parametrize(
    "verdict",
    [scored(model=OLD, shard=FIRST), QualityDegraded(request_id="r1", shard=FIRST, reason="parity: game 0")],
    ids=["fit", "unfit"],
)
def test_shards_of_a_model_left_behind_are_deleted_too(trainer: DrivenWorker, verdict: Payload) -> None:
    trainer.feed(played(1, shard=FIRST, model=OLD))
    trainer.feed(verdict)
    trainer.feed(played(2, shard=SECOND, model=NEW))
    assert ask(trainer, SECOND, model=NEW).parts[0]["discard"] == [FIRST]


def test_no_shard_is_deleted_before_the_quality_monitor_has_read_it(trainer: DrivenWorker) -> None:
    trainer.feed(played(1, shard=FIRST, model=OLD))  # of a model left behind already when it is delivered
    job = ask(trainer, SECOND, model=NEW)
    assert job.parts[0]["discard"] == []
    done(trainer, job)
    trainer.feed(QualityDegraded(request_id="r1", shard=FIRST, reason="parity: game 0"))
    assert ask(trainer, THIRD, model=NEW).parts[0]["discard"] == [SECOND, FIRST]


def test_what_a_failed_training_did_not_delete_the_next_one_does(trainer: DrivenWorker) -> None:
    done(trainer, ask(trainer, FIRST))
    job = ask(trainer, SECOND)
    assert job.parts[0]["discard"] == [FIRST]
    trainer.feed(TrainingFailed(request_id=job.id, reason="diverged", error="nan"))
    assert ask(trainer, THIRD).parts[0]["discard"] == [FIRST, SECOND]


def test_shards_of_a_request_that_another_takes_the_place_of_are_deleted_with_it(trainer: DrivenWorker) -> None:
    ask(trainer, FIRST, SECOND, model=NEW)
    assert ask(trainer, SECOND, THIRD, model=OLD).parts[0]["discard"] == [FIRST]


def test_a_shard_delivered_twice_is_not_deleted_while_it_may_still_be_wanted(trainer: DrivenWorker) -> None:
    trainer.feed(played(1, shard=FIRST, model=OLD))
    trainer.feed(scored(model=OLD, shard=FIRST))
    trainer.feed(played(2, shard=SECOND, model=OLD))
    trainer.feed(played(3, shard=FIRST, model=NEW))
    assert ask(trainer, SECOND, model=OLD).parts[0]["discard"] == []


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("TrainingDiverged", "diverged"), *((kind, "bad_data") for kind in sorted(BAD_DATA)), ("ValueError", "error")],
)
def test_a_failure_names_its_reason(trainer: DrivenWorker, kind: str, reason: str) -> None:
    job = ask(trainer, FIRST)
    (fact,) = trainer.worker.failed(job, JobFailed(job.function, kind, "no", hint="", trace=""))
    assert (fact.reason, fact.request_id) == (reason, job.id)


def test_a_worker_that_died_says_nothing_of_the_data(trainer: DrivenWorker) -> None:
    (fact,) = trainer.worker.failed(ask(trainer, FIRST), WorkerLost("gone"))
    assert fact.reason == "error"


def test_the_names_of_the_jobs_errors_are_those_of_classes() -> None:
    """They are told apart by name: what defines them loads torch."""
    known = {name for module in (app.store, app.training) for name, kind in vars(module).items() if _is_error(kind)}
    assert known >= {*BAD_DATA, DIVERGED}


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, FlyballError)
