"""TrainingTrigger: each rule at its threshold and next to it."""

from itertools import pairwise

import pytest
from driving import KEY, NEED, NEW, OLD, Driven, distributed, promoted, run_settings, scored, trained

from app.config import RunSettings
from app.controllers import TrainingTrigger
from app.core import derive_id
from app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    EvaluationFailed,
    Evidence,
    HyperparameterUpdated,
    ModelRolledBack,
    PromotionRejected,
    RunConfigured,
    TrainingBlockedByQuality,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
    TrainingUnblocked,
    follow,
)

TICK = ClockTick(period_seconds=10)
EVIDENCE = Evidence(evaluation_id="e", statistic="x", value=0, threshold=0, games=1, elo=0, elo_stderr=1)


@pytest.fixture
def trigger():
    """Return a trigger whose configuration has a distributed model."""
    driven = Driven(TrainingTrigger)
    (request,) = driven.configured
    assert isinstance(request, TrainingRequested)
    assert request.base_model is None
    assert not driven.settle()
    return driven


def rejected(model: str) -> PromotionRejected:
    return PromotionRejected(model=model, current=OLD, step=1, evidence=EVIDENCE)


def finish(trigger: Driven, model: str = NEW) -> list:
    """Finish the current training."""
    return trigger.feed(trained(model).replace(request_id=trigger.state().lineage.training))


def failed(trigger: Driven) -> TrainingFailed:
    return TrainingFailed(request_id=trigger.state().lineage.training, reason="error", error="no")


def test_shards_of_an_operators_training_are_not_trained_again(trigger):
    first, second = scored(rows=NEED // 2), scored(rows=NEED // 2, shard="e" * 64)
    trigger.feed(first)
    asked = TrainingRequested(base_model=OLD, shards=(first.shard,), step=0, seed=1, learning_rate=1e-3, epochs=1)
    trigger.feed(asked)
    trigger.feed(failed(trigger))
    assert not trigger.feed(second)
    (request,) = trigger.feed(scored(rows=NEED // 2, shard="f" * 64))
    assert first.shard not in request.shards


def test_configured_again_it_asks_for_no_second_initial_model(trigger):
    settings = trigger.settings.model_dump(mode="json")
    assert not trigger.feed(RunConfigured(run_id="r", settings=settings), key=None)


def test_initial_model_that_failed_is_requested_at_a_later_tick():
    trigger = Driven(TrainingTrigger)
    assert not trigger.feed(TICK, key=None, at=20)
    assert not trigger.feed(failed(trigger), at=21)
    assert len(trigger.feed(TICK, key=None, at=22)) == 1
    assert not trigger.feed(TICK, key=None, at=40)


def test_decisions_before_the_first_model_hold_for_its_request():
    trigger = Driven(TrainingTrigger)
    first = trigger.configured[0]
    trigger.feed(AdaptiveParamsChanged(epochs=7, games_per_iteration=128, learning_rate=2e-5, reason="x"))
    trigger.feed(TrainingBlockedByQuality(reason="x"), failed(trigger))
    (again,) = trigger.feed(TICK, key=None, at=20)
    assert again == first.replace(epochs=7, learning_rate=2e-5)
    assert trigger.state().games_per_iteration == 128
    assert trigger.state().training_block == "x"


def test_it_trains_when_the_rows_suffice_and_not_before(trigger):
    assert not trigger.feed(scored(rows=NEED - 1))
    (request,) = trigger.feed(scored(rows=1))
    assert request.base_model == OLD
    assert sum(shard.rows for shard in request.shards) == NEED


def test_request_has_the_id_of_the_training_under_way(trigger):
    trigger.late = True
    (envelope,) = trigger.envelopes(scored())
    cause = trigger.events[-1].cause
    assert not trigger.record(envelope)
    assert trigger.state().lineage.training == envelope.id == derive_id(TrainingTrigger.name, cause.id, 0)
    assert follow(envelope.data, cause, by=TrainingTrigger.name, subject=KEY).id == envelope.id


def test_request_that_is_not_recorded_is_not_repeated(trigger):
    trigger.late = True
    assert len(trigger.feed(scored())) == 1
    assert not trigger.feed(scored(), TICK)


def test_rows_of_another_model_or_of_poor_quality_are_left_alone(trigger):
    assert not trigger.feed(scored(model=NEW), scored(0.29))
    assert trigger.feed(scored(0.3))


def test_searched_rows_count_after_their_model_was_replaced():
    config = run_settings().configs[0]
    trigger = Driven(TrainingTrigger, RunSettings(configs=(config.replace(replay_rows=1000),)))
    trigger.settle(OLD)
    first = scored(rows=NEED // 2, shard="e" * 64)
    trigger.feed(first)
    trigger.settle(NEW, 1)
    late, foreign = scored(rows=NEED // 4, shard="f" * 64), scored(model="c" * 64)
    assert not trigger.feed(late, foreign)
    (request,) = trigger.feed(scored(rows=NEED // 4, model=NEW))
    assert request.base_model == NEW
    assert request.shards[:2] == (first.shard, late.shard)
    assert sum(shard.rows for shard in request.shards) == NEED


def test_it_never_trains_twice_at_once_nor_twice_on_a_shard(trigger):
    assert len(trigger.feed(scored())) == 1
    assert not trigger.feed(scored())
    assert not finish(trigger)
    (second,) = trigger.feed(rejected(NEW))
    assert len(second.shards) == 1


@pytest.mark.parametrize("end", ["failed", "evaluation failed"])
def test_a_training_that_brought_no_model_is_followed_by_another(trigger, end):
    trigger.feed(scored(), scored())
    if end == "failed":
        assert len(trigger.feed(failed(trigger))) == 1
    else:
        finish(trigger)
        assert len(trigger.feed(EvaluationFailed(request_id="e", purpose="rating", model=NEW, error="no"))) == 1


def test_the_verdict_on_an_earlier_candidate_does_not_free_it(trigger):
    trigger.feed(scored(), scored())
    finish(trigger)
    assert not trigger.feed(rejected("d" * 64))
    assert trigger.feed(rejected(NEW))


def test_a_rolled_back_models_rows_are_never_trained_on(trigger):
    trigger.settle(NEW, 1)
    trigger.feed(scored(model=NEW, rows=NEED - 1))
    trigger.feed(ModelRolledBack(from_model=NEW, to_model=OLD, step=0, reason="x"))
    assert not trigger.feed(scored(model=NEW)), "rows of the replaced model, before the old one is distributed"
    trigger.feed(distributed(OLD, 0))
    assert not trigger.feed(scored(model=NEW)), "and after"
    (request,) = trigger.feed(scored(model=OLD))
    assert {shard.model for shard in request.shards} == {OLD}
    assert request.base_model == OLD


def test_blocked_it_does_not_train_and_drops_earlier_shards(trigger):
    trigger.feed(scored(rows=NEED - 1), TrainingBlockedByQuality(reason="parity"))
    assert not trigger.feed(scored(), scored())
    assert len(trigger.feed(TrainingUnblocked(reason="clean"))) == 1


@pytest.mark.parametrize(
    ("intensity", "share"), [("hot_path", 0.5), ("accelerated", 0.75), ("normal", 1.0), ("reduced", 2.0)]
)
def test_intensity_sets_how_many_rows_are_enough(intensity, share):
    shares = {"hot_path": 0.5, "accelerated": 0.75, "normal": 1.0, "reduced": 2.0}
    trigger = Driven(TrainingTrigger, run_settings(trigger=shares))
    trigger.settle()
    trigger.feed(TrainingIntensityChanged(intensity=intensity, previous="normal", quality_score=0.5))
    rows = int(NEED * share)
    assert not trigger.feed(scored(rows=rows - 1))
    assert trigger.feed(scored(rows=1))


def test_paused_it_does_not_train(trigger):
    trigger.feed(TrainingIntensityChanged(intensity="paused", previous="normal", quality_score=0.1))
    assert not trigger.feed(*[scored()] * 10)
    resumed = TrainingIntensityChanged(intensity="normal", previous="paused", quality_score=0.7)
    assert len(trigger.feed(resumed)) == 1


def test_the_cooldown_between_trainings_holds():
    trigger = Driven(TrainingTrigger, run_settings(trigger={"cooldown_seconds": 60}))
    trigger.settle(at=1)
    assert not trigger.feed(scored(), at=59)
    assert trigger.feed(scored(), at=60)


def test_the_trainer_gets_the_values_that_were_decided(trigger):
    changed = AdaptiveParamsChanged(epochs=7, games_per_iteration=192, learning_rate=2e-4, reason="x")
    trigger.feed(changed)
    (request,) = trigger.feed(*[scored()] * 3)
    assert (request.epochs, request.learning_rate) == (7, 2e-4)


def test_more_games_per_iteration_mean_more_rows(trigger):
    games = 2 * trigger.settings.config(KEY).selfplay.games_per_request
    trigger.feed(AdaptiveParamsChanged(epochs=3, games_per_iteration=games, learning_rate=1e-3, reason="x"))
    assert not trigger.feed(scored())
    assert trigger.feed(scored())


def test_the_quality_threshold_that_was_decided_holds(trigger):
    trigger.feed(HyperparameterUpdated(parameter="quality_threshold", value=0.5, previous=0.3, reason="x"))
    assert not trigger.feed(scored(0.49))
    assert trigger.feed(scored(0.5))


def test_quality_threshold_beyond_its_bounds_is_bounded(trigger):
    trigger.feed(HyperparameterUpdated(parameter="quality_threshold", value=5.0, previous=0.3, reason="x"))
    assert not trigger.feed(scored(0.49))
    assert trigger.feed(scored(0.5))


def test_operators_settings_beyond_their_bounds_are_bounded(trigger):
    """Old journals also contain unbounded settings that Flyball's controllers published."""
    trigger.feed(AdaptiveParamsChanged(epochs=10**12, games_per_iteration=10**12, learning_rate=1.0, reason="x"))
    (request,) = trigger.feed(*[scored()] * 4)
    assert (request.epochs, request.learning_rate) == (8, 1e-3)


@pytest.mark.parametrize(("published", "taken"), [(1e-12, 1e-6), (2e-5, 2e-5)])
def test_operators_learning_rate_below_the_least_is_raised(trigger, published, taken):
    trigger.feed(AdaptiveParamsChanged(epochs=3, games_per_iteration=256, learning_rate=published, reason="x"))
    (request,) = trigger.feed(scored())
    assert request.learning_rate == taken


def test_what_is_configured_beyond_the_bounds_may_stay():
    settings = run_settings(gauntlet={"max_epochs": 2}, learning_rate={"maximum": 1e-4})
    trigger = Driven(TrainingTrigger, settings)
    trigger.settle()
    usual = settings.config(KEY)
    decided = {"epochs": usual.epochs, "learning_rate": usual.learning_rate}
    trigger.feed(AdaptiveParamsChanged(**decided, games_per_iteration=192, reason="x"))
    (request,) = trigger.feed(scored())
    assert (request.epochs, request.learning_rate) == (usual.epochs, usual.learning_rate) == (3, 1e-3)


def test_a_training_held_by_its_cooldown_begins_at_a_tick():
    """With enough rows no games are requested, so only ticks follow."""
    trigger = Driven(TrainingTrigger, run_settings(trigger={"cooldown_seconds": 600}))
    trigger.settle(at=1)
    assert not trigger.feed(scored(rows=NEED), at=599)
    assert not trigger.feed(TICK, key=None, at=599.9)
    (request,) = trigger.feed(TICK, key=None, at=600)
    assert isinstance(request, TrainingRequested)
    assert sum(shard.rows for shard in request.shards) == NEED


LIMITS = run_settings().feedback.trigger


def fail(trigger: Driven, times: int, at: float) -> None:
    """Let a number of trainings fail, which operators requested."""
    for number in range(times):
        asked = TrainingRequested(base_model=OLD, shards=(), step=0, seed=number, learning_rate=1e-3, epochs=1)
        trigger.feed(asked, at=at)
        assert not trigger.feed(failed(trigger), at=at)


def started_after(trigger: Driven, failed_at: float) -> float:
    """Return the seconds from a failure to the next training request.

    Enough rows are fed at the failure, and then a tick each second.
    """
    said, at = trigger.feed(scored(), at=failed_at), failed_at
    while not said:
        at += 1
        said = trigger.feed(TICK, key=None, at=at)
        assert at < failed_at + 10_000
    (request,) = said
    assert request.shards
    return at - failed_at


@pytest.mark.parametrize(("failures", "factor"), [(2, 1), (3, 2), (5, 8)])
def test_failures_in_a_row_make_a_pause_that_doubles(trigger, failures, factor):
    fail(trigger, failures, at=1000)
    assert started_after(trigger, 1000) == LIMITS.pause_seconds * factor


def test_single_failure_makes_no_pause(trigger):
    fail(trigger, 1, at=1000)
    assert started_after(trigger, 1000) == 0


def test_pause_after_many_failures_has_a_longest(trigger):
    fail(trigger, 100, at=1000)
    assert started_after(trigger, 1000) == LIMITS.longest_pause_seconds


def test_failed_ratings_make_a_pause_and_failed_gates_none(trigger):
    for purpose, pause in (("gate", 0), ("rating", LIMITS.pause_seconds)):
        trigger.settle()
        for _ in range(2):
            trigger.feed(EvaluationFailed(request_id="e", purpose=purpose, model=NEW, error="no"), at=1000)
        assert started_after(trigger, 1000) == pause
        trigger.feed(failed(trigger), at=1000)


@pytest.mark.parametrize("verdict", [(rejected(NEW),), (promoted(NEW), distributed(NEW))])
def test_verdict_ends_failures_in_a_row(trigger, verdict):
    fail(trigger, 9, at=1000)
    trigger.feed(*verdict, at=1000)
    fail(trigger, 1, at=1000)
    model = trigger.state().lineage.playing
    assert trigger.feed(scored(model=model), at=1000)


def test_failing_initial_model_is_requested_more_rarely():
    trigger, times = Driven(TrainingTrigger), [0]
    for at in range(1, 2000):
        if trigger.state().lineage.training:
            trigger.feed(failed(trigger), at=at)
        if trigger.feed(TICK, key=None, at=at):
            times.append(at)
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits == sorted(waits)
    assert waits[0] < 15
    assert waits[-1] >= LIMITS.longest_pause_seconds
