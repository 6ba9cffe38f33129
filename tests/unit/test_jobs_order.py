"""Jobs of workers: oldest first, and those that a replaced model leaves."""

from functools import partial

import pytest
from driving import KEY, NEW, OLD, OTHER_KEY, DrivenWorker, distributed, played, promoted, run_settings
from scenario_events import asked

from flyball.app.config import GAMES, RunSettings
from flyball.app.controllers.fold import Fold
from flyball.app.events import EvaluationRequested, ModelRolledBack, Payload, RunConfigured, TrainingRequested
from flyball.app.job_specs import JobContext
from flyball.daemons.distribution import Distributor
from flyball.daemons.evaluation import Evaluator
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.quality_monitor import QualityMonitor
from flyball.daemons.selfplay_worker import SelfplayWorker
from flyball.daemons.training import Trainer

IDENTITY = WorkerIdentity("selfplay_worker@laptop", "laptop", JobContext(store="store"))
TRAINING = TrainingRequested(base_model=None, shards=(), step=0, seed=1, learning_rate=1e-3, epochs=1)
RATING = EvaluationRequested(purpose="rating", model="a" * 64, step=0, seed=1)


WANTED: dict[type, tuple[Payload, Payload]] = {
    SelfplayWorker: (asked(IDENTITY.name), asked(IDENTITY.name)),
    QualityMonitor: (played(2), played(1, shard="d" * 64)),
    Trainer: (TRAINING, TRAINING),
    Evaluator: (RATING, RATING),
    Distributor: (promoted(), promoted()),
}


@pytest.mark.parametrize("worker", WANTED)
@pytest.mark.parametrize("keys", [(KEY, OTHER_KEY), (OTHER_KEY, KEY)], ids=" ".join)
def test_jobs_run_in_the_order_of_the_journal(record, worker, keys):
    settings = run_settings(KEY, OTHER_KEY).model_dump(mode="json")
    events = [record(RunConfigured(run_id="run", settings=settings), at=1)]
    events += [record(data, key, at=2) for data, key in zip(WANTED[worker], keys, strict=True)]
    outcome = Fold((partial(worker, identity=IDENTITY),)).feed(events)
    for saved in (outcome.saved(), dict(reversed(outcome.saved().items()))):
        fold = Fold((partial(worker, identity=IDENTITY),), saved)
        waiting = {key: row for key, row in fold.rows(worker.name).items() if row.cause}
        assert [job.id for job in fold.reducers[-1].jobs(waiting, fold.states)] == [event.id for event in events[1:]]


@pytest.mark.parametrize(("replay_rows", "kept"), [(None, [NEW]), (0, [NEW]), (1000, [OLD, NEW])])
def test_requests_of_a_replaced_model_are_kept_where_rows_replay(replay_rows: int | None, kept: list[str]) -> None:
    """The scheduler awaits these requests. It would blame the worker for dropped ones at the end of their lease."""
    worker = DrivenWorker(SelfplayWorker, RunSettings(configs=(GAMES[KEY].replace(replay_rows=replay_rows),)))
    for model in (OLD, NEW):
        worker.feed(asked(worker.worker.identity.name, model))
    assert [job.request.model for job in worker.jobs()] == kept


@pytest.mark.parametrize(("staleness", "kept"), [(0, [NEW]), (1, [OLD, NEW])])
def test_requests_of_a_champion_before_are_kept_while_fresh(staleness: int, kept: list[str]) -> None:
    worker = DrivenWorker(SelfplayWorker, run_settings(trigger={"staleness": staleness}))
    for step, model in enumerate((OLD, NEW)):
        for fact in (promoted(model), distributed(model, step), asked(worker.worker.identity.name, model)):
            worker.feed(fact)
    assert [job.request.model for job in worker.jobs()] == kept


BACK = ModelRolledBack(from_model=NEW, to_model=OLD, step=0, reason="weaker")


def playing(key: str = KEY, *, probe: bool = False) -> DrivenWorker:
    """Return a worker with a request for the champion NEW."""
    worker = DrivenWorker(SelfplayWorker, run_settings(KEY, OTHER_KEY))
    for model in (OLD, NEW):
        worker.feed(promoted(model))
    worker.feed(asked(worker.worker.identity.name, NEW).replace(probe=probe), key)
    return worker


def test_requests_of_a_rolled_back_configuration_are_dropped() -> None:
    """The scheduler replaces the dropped requests, whose rows would not count."""
    worker = playing()
    worker.feed(BACK)
    assert not worker.jobs()


@pytest.mark.parametrize(
    ("key", "probe", "back"),
    [
        (OTHER_KEY, False, BACK),
        (KEY, True, BACK),
        (KEY, False, ModelRolledBack(from_model=OLD, to_model="d" * 64, step=0, reason="late")),
    ],
    ids=["of another configuration", "a probe", "the rollback is stale"],
)
def test_other_requests_stay_after_a_rollback(key: str, probe: bool, back: ModelRolledBack) -> None:
    worker = playing(key, probe=probe)
    worker.feed(back)
    assert len(worker.jobs()) == 1
