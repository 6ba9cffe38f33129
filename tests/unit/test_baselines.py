"""Agreement of baselines and controllers on rows and failed ratings."""

import pytest
from builders import ready, rolled_back, training_of, unrated
from driving import KEY, NEED, NEW, OLD, Driven, distributed, gated, rated, run_settings, scored, trained

from flyball.app.config import GAMES, RunSettings
from flyball.app.events import ModelPromoted, NodeQuarantined, SelfplayRequested, TrainingRequested
from flyball.app.simulation.baselines import PromoteAlways, TrainAlways, UniformBesideTrigger, UniformScheduler


def test_failed_rating_of_the_current_model_starts_no_training():
    driven = Driven(TrainAlways)
    driven.settle()
    (request,) = driven.feed(scored(rows=NEED))
    assert isinstance(request, TrainingRequested)
    result = trained(NEW).replace(request_id=driven.state().lineage.training)
    assert not driven.feed(scored(rows=NEED), result, unrated(OLD))
    assert len(driven.feed(unrated(NEW))) == 1


def test_model_with_a_gate_alone_is_promoted():
    """FeedbackLoopController requests no rating for most candidates."""
    driven = Driven(PromoteAlways)
    (first,) = driven.feed(trained(OLD, None, 0), rated(model=OLD, step=0))
    assert (type(first), first.model) == (ModelPromoted, OLD)
    driven.feed(training_of())
    driven.feed(trained(NEW, OLD, 1).replace(request_id=driven.events[-1].id))
    (again,) = driven.feed(unrated(NEW, "gate"))
    assert (again.purpose, again.model, again.step) == ("gate", NEW, 1)
    (promoted,) = driven.feed(gated(10, 0, 90))
    assert (type(promoted), promoted.previous) == (ModelPromoted, OLD)


REPLAYING = RunSettings(configs=(GAMES[KEY].replace(replay_rows=1000),))
"""Settings under which rows of former champions stay fresh."""
FRESH_ALONE = run_settings(trigger={"staleness": 0})


@pytest.mark.parametrize(("settings", "counts"), [(FRESH_ALONE, False), (None, True), (REPLAYING, True)])
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
    driven.feed(scored(rows=NEED // 2), rolled_back(NEW, OLD), distributed())
    assert not driven.feed(scored(rows=NEED - NEED // 2))
    assert len(driven.feed(scored(rows=NEED // 2))) == 1


class Asking:
    """A uniform scheduler that requests whatever rows it lacks."""

    def __init__(self, scheduler: type[UniformScheduler], settings: RunSettings | None = None) -> None:
        self.driven = Driven(scheduler, settings)

    def lacks_rows(self) -> bool:
        asked = self.driven.envelopes(ready("selfplay_worker", f"n{len(self.driven.events)}"), key=None)
        assert all(isinstance(one.data, SelfplayRequested) for one in asked)
        self.request = asked[0].id if asked else None
        return bool(asked)

    def fill(self, model: str = OLD) -> None:
        """Answer requests, each with half of the needed rows."""
        while self.lacks_rows():
            self.driven.feed(scored(rows=NEED // 2, request=self.request, model=model))


@pytest.mark.parametrize("quarantined", [False, True])
@pytest.mark.parametrize("scheduler", [UniformScheduler, UniformBesideTrigger])
def test_spent_or_quarantined_rows_are_requested_again(scheduler, quarantined):
    asking = Asking(scheduler)
    asking.driven.feed(distributed())
    asking.fill()
    spent = tuple(event.data.shard for event in asking.driven.events if hasattr(event.data, "score"))
    if quarantined:
        bad = NodeQuarantined(worker=spent[0].worker, reason="bad", lasts_seconds=60.0)
        assert asking.driven.feed(bad, key=None)
    else:
        assert asking.driven.feed(training_of(*spent))


@pytest.mark.parametrize(("settings", "lacks"), [(FRESH_ALONE, True), (None, False), (REPLAYING, False)])
def test_fresh_rows_outlive_their_model_where_replayed(settings, lacks):
    asking = Asking(UniformScheduler, settings)
    asking.driven.settle()
    asking.fill()
    assert bool(asking.driven.settle(NEW, 1)) is lacks


@pytest.mark.parametrize("scheduler", [UniformScheduler, UniformBesideTrigger])
def test_only_selfplay_workers_are_asked_for_games(scheduler):
    driven = Driven(scheduler)
    driven.feed(ready("training", "a"), key=None)
    assert not driven.feed(distributed())
    (request,) = driven.feed(ready("selfplay_worker", "a"), key=None)
    assert request.worker == "selfplay_worker@a"
