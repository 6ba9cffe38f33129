"""The neutral baselines: like the controllers, they ignore failed ratings of the current model."""

import pytest
from driving import NEED, NEW, OLD, Driven, distributed, scored, trained

from app.events import DaemonReady, EvaluationFailed, SelfplayRequested, TrainingRequested
from app.simulation.baselines import TrainAlways, UniformBesideTrigger, UniformScheduler


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
