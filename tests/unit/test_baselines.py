"""Agreement of baselines and controllers on rows and failed ratings."""

import pytest
from driving import KEY, NEED, NEW, OLD, Driven, distributed, scored, trained

from app.config import GAMES, RunSettings
from app.events import (
    DaemonReady,
    EvaluationFailed,
    ModelRolledBack,
    NodeQuarantined,
    SelfplayRequested,
    ShardRef,
    TrainingRequested,
)
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


REPLAYING = RunSettings(configs=(GAMES[KEY].replace(replay_rows=1000),))
"""Settings under which rows of former champions stay fresh."""


@pytest.mark.parametrize(("settings", "counts"), [(None, False), (REPLAYING, True)])
def test_rows_of_a_former_champion_count_where_replayed(settings, counts):
    driven = Driven(TrainAlways, settings)
    driven.settle()
    driven.feed(scored(rows=NEED // 2))
    driven.settle(NEW, 1)
    assert bool(driven.feed(scored(rows=NEED - NEED // 2, model=NEW))) is counts


def test_rows_before_a_rollback_start_no_training():
    driven = Driven(TrainAlways, REPLAYING)
    driven.settle()
    driven.settle(NEW, 1)
    driven.feed(scored(rows=NEED // 2), rolled_back(), distributed())
    assert not driven.feed(scored(rows=NEED - NEED // 2))
    assert len(driven.feed(scored(rows=NEED // 2))) == 1


def rolled_back() -> ModelRolledBack:
    return ModelRolledBack(from_model=NEW, to_model=OLD, step=0, reason="worse")


def training_of(shards: tuple[ShardRef, ...]) -> TrainingRequested:
    return TrainingRequested(base_model=OLD, shards=shards, step=0, seed=1, learning_rate=1e-3, epochs=1)


class Asking:
    """A uniform scheduler that requests whatever rows it lacks."""

    def __init__(self, scheduler: type[UniformScheduler], settings: RunSettings | None = None) -> None:
        self.driven = Driven(scheduler, settings)

    def lacks_rows(self) -> bool:
        ready = DaemonReady(daemon="selfplay_worker", node=f"n{len(self.driven.events)}", position=0, capacity=1)
        asked = self.driven.envelopes(ready, key=None)
        assert all(isinstance(one.data, SelfplayRequested) for one in asked)
        self.request = asked[0].id if asked else None
        return bool(asked)

    def fill(self, model: str = OLD) -> None:
        """Answer requests, each with half of the needed rows."""
        while self.lacks_rows():
            self.driven.feed(scored(rows=NEED // 2, request=self.request, model=model))


@pytest.mark.parametrize("scheduler", [UniformScheduler, UniformBesideTrigger])
def test_rows_of_a_requested_training_are_requested_again(scheduler):
    asking = Asking(scheduler)
    asking.driven.feed(distributed())
    asking.fill()
    spent = tuple(event.data.shard for event in asking.driven.events if hasattr(event.data, "score"))
    assert asking.driven.feed(training_of(spent))


@pytest.mark.parametrize(("settings", "lacks"), [(None, True), (REPLAYING, False)])
def test_fresh_rows_outlive_their_model_where_replayed(settings, lacks):
    asking = Asking(UniformScheduler, settings)
    asking.driven.settle()
    asking.fill()
    assert bool(asking.driven.settle(NEW, 1)) is lacks


@pytest.mark.parametrize("scheduler", [UniformScheduler, UniformBesideTrigger])
def test_quarantined_workers_rows_are_requested_again(scheduler):
    asking = Asking(scheduler)
    asking.driven.feed(distributed())
    asking.fill()
    worker = next(event.data.shard.worker for event in asking.driven.events if hasattr(event.data, "score"))
    assert asking.driven.feed(NodeQuarantined(worker=worker, reason="bad", lasts_seconds=60.0), key=None)


@pytest.mark.parametrize("scheduler", [UniformScheduler, UniformBesideTrigger])
def test_only_selfplay_workers_are_asked_for_games(scheduler):
    driven = Driven(scheduler)
    driven.feed(DaemonReady(daemon="training", node="a", position=0, capacity=1), key=None)
    assert not driven.feed(distributed())
    (request,) = driven.feed(DaemonReady(daemon="selfplay_worker", node="a", position=0, capacity=1), key=None)
    assert request.worker == "selfplay_worker@a"
