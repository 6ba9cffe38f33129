"""Deadlines: every kind of job has one. A job that misses its deadline fails with a typed fact."""

import pytest
from builders import training_of
from driving import KEY, DrivenWorker, played, promoted, run_settings
from scenario_events import asked

from flyball.app.config import GAMES, DeadlineSettings, EvaluationSettings
from flyball.app.engine import JobTimedOut
from flyball.app.events import (
    DistributionFailed,
    EvaluationFailed,
    EvaluationRequested,
    InspectionFailed,
    SelfplayFailed,
    TrainingFailed,
)
from flyball.daemons.distribution import Distributor
from flyball.daemons.evaluation import Evaluator
from flyball.daemons.quality_monitor import QualityMonitor
from flyball.daemons.selfplay_worker import SelfplayWorker
from flyball.daemons.training import Trainer

DEADLINES = DeadlineSettings(
    selfplay_seconds=1.0, inspection_seconds=2.0, training_seconds=3.0, distribution_seconds=4.0
)
GAME = GAMES[KEY].replace(evaluation=EvaluationSettings(batch_seconds=5.0))
SETTINGS = run_settings().replace(deadlines=DEADLINES, configs=(GAME,))
TRAINING = training_of(model=None)
RATING = EvaluationRequested(purpose="rating", model="a" * 64, step=0, seed=1)
KINDS = [
    (SelfplayWorker, asked("SelfplayWorker@laptop"), 1.0, SelfplayFailed),
    (QualityMonitor, played(), 2.0, InspectionFailed),
    (Trainer, TRAINING, 3.0, TrainingFailed),
    (Distributor, promoted(), 4.0, DistributionFailed),
    (Evaluator, RATING, 5.0, EvaluationFailed),
]


@pytest.mark.parametrize(("worker", "request_", "seconds", "failure"), KINDS)
def test_job_that_misses_its_deadline_fails_as_typed_fact(worker, request_, seconds, failure):
    driven = DrivenWorker(worker, SETTINGS)
    driven.feed(request_)
    (job,) = driven.jobs()
    assert job.deadline_seconds == seconds
    (fact,) = driven.worker.failed(job, JobTimedOut("it was not done in time"))
    assert isinstance(fact, failure)
    assert "not done in time" in fact.error
    assert getattr(fact, "reason", "timed_out") == "timed_out"
    driven.feed(fact)
    assert not driven.jobs(), "what failed for good is not started again at once"
