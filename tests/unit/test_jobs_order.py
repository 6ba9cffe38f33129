"""Jobs of every worker: oldest first, in the order of the journal. One record may hold several events."""

from functools import partial

import pytest
from driving import KEY, OTHER_KEY, played, promoted, run_settings
from scenario_events import asked

from app.controllers.fold import Fold
from app.events import EvaluationRequested, Payload, RunConfigured, TrainingRequested
from daemons.distribution import Distributor
from daemons.evaluation import Evaluator
from daemons.jobs import WorkerPlace
from daemons.quality_monitor import QualityMonitor
from daemons.selfplay_worker import SelfplayWorker
from daemons.training import Trainer

PLACE = WorkerPlace("selfplay_worker@laptop", "laptop", "store")
TRAINING = TrainingRequested(base_model=None, shards=(), step=0, seed=1, learning_rate=1e-3, epochs=1)
RATING = EvaluationRequested(purpose="rating", model="a" * 64, step=0, seed=1)


WANTED: dict[type, tuple[Payload, Payload]] = {
    SelfplayWorker: (asked(PLACE.name), asked(PLACE.name)),
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
    outcome = Fold((partial(worker, place=PLACE),)).feed(events)
    for saved in (outcome.saved(), dict(reversed(outcome.saved().items()))):
        fold = Fold((partial(worker, place=PLACE),), saved)
        waiting = {key: row for key, row in fold.rows(worker.name).items() if row.cause}
        assert [job.id for job in fold.reducers[-1].jobs(waiting, fold.states)] == [event.id for event in events[1:]]
