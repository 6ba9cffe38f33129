"""The neutral baselines agree with the controllers beside them about rows and failed ratings."""

import pytest
from driving import KEY, NEED, NEW, OLD, Driven, distributed, scored, trained

from app.config import GAMES, RunSettings
from app.events import DaemonReady, EvaluationFailed, SelfplayRequested, TrainingRequested
from app.simulation.baselines import TrainAlways, TrainBesideScheduler, UniformBesideTrigger, UniformScheduler


def unrated(model: str) -> EvaluationFailed:
    return EvaluationFailed(request_id="e", purpose="rating", model=model, error="no")


def test_failed_rating_of_the_current_model_starts_no_training():
    driven = Driven(TrainAlways)
    driven.settle()
    (request,) = driven.feed(scored(rows=NEED))
    assert isinstance(request, TrainingRequested)
    result = trained(NEW).replace(request_id=driven.state().lineage.training)
    assert not driven.feed(scored(rows=NEED), result, unrated(OLD))
    assert len(driven.feed(unrated(NEW))) == 1


@pytest.mark.parametrize(("trainer", "counts"), [(TrainAlways, False), (TrainBesideScheduler, True)])
def test_replayed_rows_count_for_trainings_beside_the_scheduler(trainer, counts):
    """The scheduler counts them, and would wait for a training that lacks them."""
    driven = Driven(trainer, RunSettings(configs=(GAMES[KEY].replace(replay_rows=1000),)))
    driven.settle()
    driven.feed(scored(rows=NEED // 2))
    driven.settle(NEW, 1)
    assert bool(driven.feed(scored(rows=NEED - NEED // 2, model=NEW))) is counts


@pytest.mark.parametrize("scheduler", [UniformScheduler, UniformBesideTrigger])
def test_failed_rating_of_the_current_model_brings_no_games(scheduler):
    driven = Driven(scheduler)

    def ready(node):
        return driven.envelopes(DaemonReady(daemon="selfplay_worker", node=node, position=0, capacity=1), key=None)

    ready("a")
    asked = driven.envelopes(distributed())
    while asked:
        assert isinstance(asked[0].data, SelfplayRequested)
        answer = scored(rows=NEED, request=asked[0].id)
        asked = driven.envelopes(answer) + ready(f"b{len(driven.events)}")
    assert not driven.feed(unrated(OLD))
    assert len(driven.feed(unrated(NEW))) == 1


@pytest.mark.parametrize("scheduler", [UniformScheduler, UniformBesideTrigger])
def test_only_selfplay_workers_are_asked_for_games(scheduler):
    driven = Driven(scheduler)
    driven.feed(DaemonReady(daemon="training", node="a", position=0, capacity=1), key=None)
    assert not driven.feed(distributed())
    (request,) = driven.feed(DaemonReady(daemon="selfplay_worker", node="a", position=0, capacity=1), key=None)
    assert request.worker == "selfplay_worker@a"
