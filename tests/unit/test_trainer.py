"""The trainer: data of trainings, and reasons of failures."""

import pytest
from driving import KEY, OLD, DrivenWorker, trained

from flyball.app.config import GAMES, RunSettings
from flyball.app.core import FlyballError
from flyball.app.engine import JobFailed, WorkerLost
from flyball.app.events import ShardRef, TrainingFailed, TrainingRequested
from flyball.app.learning.ppo import TrainingDiverged
from flyball.app.learning.samples import UnfinishedEpisode
from flyball.app.learning.training import DiscardedUpdate, UnfitData
from flyball.app.store import DamagedBlob, MissingBlob
from flyball.app.store.checkpoints import NoModel
from flyball.daemons.jobs import Job
from flyball.daemons.training import Trainer

FIRST, SECOND = "1" * 64, "2" * 64


@pytest.fixture
def trainer() -> DrivenWorker:
    return DrivenWorker(Trainer)


def ask(trainer: DrivenWorker, *shards: str) -> Job:
    refs = tuple(
        ShardRef(worker="selfplay_worker@laptop", key=key, rows=9, games=1, model=OLD, seed=1) for key in shards
    )
    request = TrainingRequested(base_model=OLD, shards=refs, step=0, seed=1, learning_rate=0.1, epochs=1)
    trainer.feed(request)
    (job,) = trainer.jobs()
    return job


def done(trainer: DrivenWorker, job: Job) -> None:
    trainer.feed(trained().replace(request_id=job.id))
    assert not trainer.jobs()


def test_a_training_runs_until_its_own_result_is_there(trainer: DrivenWorker) -> None:
    job = ask(trainer, FIRST, SECOND)
    assert job.parts[0]["shards"] == [FIRST, SECOND]
    trainer.feed(trained())
    assert [one.id for one in trainer.jobs()] == [job.id]
    done(trainer, job)
    job = ask(trainer, FIRST)
    trainer.feed(TrainingFailed(request_id=job.id, reason="diverged", error="nan"))
    assert not trainer.jobs()


def test_a_request_takes_the_place_of_the_one_before(trainer: DrivenWorker) -> None:
    first, second = ask(trainer, FIRST), ask(trainer, SECOND)
    done(trainer, second)
    assert first.id != second.id


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        *((kind, "diverged") for kind in (TrainingDiverged, DiscardedUpdate)),
        *((kind, "bad_data") for kind in (DamagedBlob, MissingBlob, NoModel, UnfinishedEpisode, UnfitData)),
        (FlyballError, "error"),
    ],
)
def test_a_failure_names_its_reason(trainer: DrivenWorker, kind: type[FlyballError], reason: str) -> None:
    job = ask(trainer, FIRST)
    (fact,) = trainer.worker.failed(job, JobFailed(job.function, "X", "no", hint="", trace="", code=kind.code))
    assert (fact.reason, fact.request_id) == (reason, job.id)


def test_failures_of_workers_say_nothing_of_the_data(trainer: DrivenWorker) -> None:
    (fact,) = trainer.worker.failed(ask(trainer, FIRST), WorkerLost("gone"))
    assert fact.reason == "error"


def replaying(rows: int | None) -> DrivenWorker:
    config = GAMES[KEY].replace(replay_rows=rows)
    return DrivenWorker(Trainer, RunSettings(configs=(config,)))


def numbered(number: int) -> str:
    return f"{number:064x}"


def test_replayed_are_the_latest_shards_of_ended_trainings() -> None:
    for rows, expected in ((1000, range(30, 40)), (50, range(34, 40)), (None, ())):
        trainer = replaying(rows)
        for number in range(40):
            done(trainer, ask(trainer, numbered(number)))
        job = ask(trainer, numbered(99))
        assert job.parts[0]["replayed"] == [numbered(number) for number in expected]
        assert job.parts[0]["shards"] == [numbered(99)]
    trainer = replaying(1000)
    for number in range(8):
        done(trainer, ask(trainer, numbered(number)))
    replayed = ask(trainer, numbered(8)).parts[0]["replayed"]
    assert replayed == ask(trainer, numbered(9)).parts[0]["replayed"] == [numbered(6), numbered(7)]
    trainer = replaying(1000)
    for number in range(8):
        job = ask(trainer, numbered(number))
        if number == 7:
            trainer.feed(TrainingFailed(request_id=job.id, reason="bad_data", error="no"))
        else:
            done(trainer, job)
    assert ask(trainer, numbered(8)).parts[0]["replayed"] == [numbered(5), numbered(6)]
