"""TrainingTrigger: each rule at its threshold and next to it."""

from itertools import pairwise

import pytest
from builders import adapted, configured, intensity, rejected, rolled_back, training_failed, training_of, tuned, unrated
from driving import KEY, NEED, NEW, OLD, Driven, distributed, promoted, run_settings, scored, trained

from flyball.app.config import RunSettings
from flyball.app.controllers import TrainingTrigger
from flyball.app.core import derive_id
from flyball.app.events import (
    ClockTick,
    TrainingBlockedByQuality,
    TrainingFailed,
    TrainingRequested,
    TrainingUnblocked,
    follow,
)

TICK = ClockTick(period_seconds=10)


@pytest.fixture
def trigger():
    driven = Driven(TrainingTrigger)
    (request,) = driven.configured
    assert isinstance(request, TrainingRequested)
    assert request.base_model is None
    assert not driven.settle()
    return driven


def finish(trigger: Driven, model: str = NEW) -> list:
    return trigger.feed(trained(model).replace(request_id=trigger.state().lineage.training))


def failed(trigger: Driven) -> TrainingFailed:
    return training_failed(trigger.state().lineage.training)


def triggering(run: RunSettings | None = None, **settings) -> Driven:
    driven = Driven(TrainingTrigger, run or run_settings(**settings))
    driven.settle(at=1)
    return driven


def test_shards_of_an_operators_training_are_not_trained_again(trigger):
    first, second = scored(rows=NEED // 2), scored(rows=NEED // 2, shard="e" * 64)
    trigger.feed(first, training_of(first.shard))
    trigger.feed(failed(trigger))
    assert not trigger.feed(second)
    (request,) = trigger.feed(scored(rows=NEED // 2, shard="f" * 64))
    assert first.shard not in request.shards


def test_configured_again_it_asks_for_no_second_initial_model(trigger):
    assert not trigger.feed(configured(trigger.settings), key=None)


def test_failed_initial_model_is_requested_with_decisions():
    trigger = Driven(TrainingTrigger)
    assert not trigger.feed(TICK, key=None, at=20)
    assert not trigger.feed(failed(trigger), at=21)
    assert len(trigger.feed(TICK, key=None, at=22)) == 1
    assert not trigger.feed(TICK, key=None, at=40)
    trigger = Driven(TrainingTrigger)
    first = trigger.configured[0]
    trigger.feed(adapted(7, 128, 2e-5), TrainingBlockedByQuality(reason="x"), failed(trigger))
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
    assert not trigger.feed(scored(), TICK), "before it is recorded, it is not repeated"
    assert not trigger.record(envelope)
    assert trigger.state().lineage.training == envelope.id == derive_id(TrainingTrigger.name, cause.id, 0)
    assert follow(envelope.data, cause, by=TrainingTrigger.name, subject=KEY).id == envelope.id


@pytest.mark.parametrize(
    ("decided", "threshold"),
    [((), 0.3), ((tuned("quality_threshold", 0.5),), 0.5), ((tuned("quality_threshold", 5.0),), 0.5)],
    ids=["default", "decided", "bounded"],
)
def test_rows_of_another_model_or_of_poor_quality_do_not_count(trigger, decided, threshold):
    trigger.feed(*decided)
    assert not trigger.feed(scored(model=NEW), scored(threshold - 0.01))
    assert trigger.feed(scored(threshold))


def test_searched_rows_count_after_their_model_was_replaced():
    trigger = triggering(RunSettings(configs=(run_settings().configs[0].replace(replay_rows=1000),)))
    first = scored(rows=NEED // 2, shard="e" * 64)
    trigger.feed(first)
    trigger.settle(NEW, 1)
    late, foreign = scored(rows=NEED // 4, shard="f" * 64), scored(model="c" * 64)
    assert not trigger.feed(late, foreign)
    (request,) = trigger.feed(scored(rows=NEED // 4, model=NEW))
    assert request.base_model == NEW
    assert request.shards[:2] == (first.shard, late.shard)
    assert sum(shard.rows for shard in request.shards) == NEED


@pytest.mark.parametrize(("staleness", "counted"), [(0, "c"), (1, "bc"), (2, "abc")])
def test_rows_of_champions_before_count_up_to_staleness(staleness, counted):
    """Rows are played by the champions a, b and c in turn; c plays now."""
    trigger = triggering(trigger={"staleness": staleness})
    for step, name in enumerate("abc"):
        trigger.settle(name * 64, step)
    for name in "abcd":
        assert not trigger.feed(scored(rows=1, model=name * 64, shard=name * 64))
    (request,) = trigger.feed(scored(rows=NEED, model="c" * 64))
    assert [shard.key for shard in request.shards][:-1] == [name * 64 for name in counted]
    assert request.base_model == "c" * 64


def test_rows_grow_stale_when_another_champion_is_distributed():
    trigger = triggering(trigger={"staleness": 1})
    shards = []
    for step, name in enumerate("bcd"):
        trigger.settle(name * 64, step)
        shards.append(scored(rows=NEED // 4, model=name * 64, shard=name * 64))
        trigger.feed(shards[-1])
    (request,) = trigger.feed(scored(rows=NEED // 2, model="d" * 64))
    assert request.shards[:2] == (shards[1].shard, shards[2].shard)


def test_training_takes_all_fresh_rows_up_to_most_rows():
    trigger = triggering(trigger={"most_rows_factor": 3.0})
    trigger.feed(scored(rows=NEED))
    for number in range(5):
        assert not trigger.feed(scored(rows=NEED, shard=f"{number:064x}"))
    (request,) = trigger.feed(failed(trigger))
    assert [shard.key for shard in request.shards] == [f"{number:064x}" for number in (2, 3, 4)]


def test_it_never_trains_twice_at_once_nor_twice_on_a_shard(trigger):
    assert len(trigger.feed(scored())) == 1
    assert not trigger.feed(scored())
    assert not finish(trigger)
    (second,) = trigger.feed(rejected(NEW))
    assert len(second.shards) == 1


@pytest.mark.parametrize("end", [unrated(), None], ids=["evaluation failed", "failed"])
def test_a_training_that_brought_no_model_is_followed_by_another(trigger, end):
    trigger.feed(scored(), scored())
    if end:
        finish(trigger)
    assert len(trigger.feed(end or failed(trigger))) == 1


def test_the_verdict_on_an_earlier_candidate_does_not_free_it(trigger):
    trigger.feed(scored(), scored())
    finish(trigger)
    assert not trigger.feed(rejected("d" * 64))
    assert trigger.feed(rejected(NEW))


def test_a_rolled_back_models_rows_are_never_trained_on(trigger):
    trigger.settle(NEW, 1)
    trigger.feed(scored(model=NEW, rows=NEED - 1), rolled_back(NEW, OLD))
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
    ("level", "share"), [("hot_path", 0.5), ("accelerated", 0.75), ("normal", 1.0), ("reduced", 2.0)]
)
def test_intensity_sets_how_many_rows_are_enough(level, share):
    shares = {"hot_path": 0.5, "accelerated": 0.75, "normal": 1.0, "reduced": 2.0}
    trigger = triggering(trigger=shares)
    trigger.feed(intensity(level))
    assert not trigger.feed(scored(rows=int(NEED * share) - 1))
    assert trigger.feed(scored(rows=1))


def test_paused_it_does_not_train(trigger):
    trigger.feed(intensity("paused"))
    assert not trigger.feed(*[scored()] * 10)
    assert len(trigger.feed(intensity("normal", "paused", 0.7))) == 1


@pytest.mark.parametrize("ends", [(scored(), KEY), (TICK, None)], ids=["with a shard", "at a tick"])
def test_a_training_held_by_its_cooldown_begins_after_it(ends):
    """With enough rows no games are requested, so only ticks follow."""
    trigger = triggering(trigger={"cooldown_seconds": 600})
    assert not trigger.feed(scored(rows=NEED), at=599)
    assert not trigger.feed(TICK, key=None, at=599.9)
    (request,) = trigger.feed(ends[0], key=ends[1], at=600)
    assert sum(shard.rows for shard in request.shards) >= NEED


@pytest.mark.parametrize(
    ("decided", "epochs", "rate"),
    [
        (adapted(7, 192, 2e-4), 7, 2e-4),
        (adapted(10**12, 10**12, 1.0), 8, 1e-3),
        (adapted(learning_rate=1e-12), 3, 1e-6),
        (adapted(learning_rate=2e-5), 3, 2e-5),
    ],
    ids=["decided", "too large", "too small", "small"],
)
def test_the_trainer_gets_decided_values_within_their_bounds(trigger, decided, epochs, rate):
    """Old journals also contain unbounded settings that Flyball's controllers published."""
    trigger.feed(decided)
    (request,) = trigger.feed(*[scored()] * 4)
    assert (request.epochs, request.learning_rate) == (epochs, rate)


def test_more_games_per_iteration_mean_more_rows(trigger):
    trigger.feed(adapted(games=2 * trigger.settings.config(KEY).selfplay.games_per_request))
    assert not trigger.feed(scored())
    assert trigger.feed(scored())


def test_what_is_configured_beyond_the_bounds_may_stay():
    trigger = triggering(gauntlet={"max_epochs": 2}, learning_rate={"maximum": 1e-4})
    usual = trigger.settings.config(KEY)
    trigger.feed(adapted(usual.epochs, 192, usual.learning_rate))
    (request,) = trigger.feed(scored())
    assert (request.epochs, request.learning_rate) == (usual.epochs, usual.learning_rate) == (3, 1e-3)


LIMITS = run_settings().feedback.trigger


def fail(trigger: Driven, times: int, at: float) -> None:
    for number in range(times):
        trigger.feed(training_of(seed=number), at=at)
        assert not trigger.feed(failed(trigger), at=at)


def started_after(trigger: Driven, failed_at: float) -> float:
    """Return the seconds from a failure to the next training request."""
    said, at = trigger.feed(scored(), at=failed_at), failed_at
    while not said:
        at += 1
        said = trigger.feed(TICK, key=None, at=at)
        assert at < failed_at + 10_000
    (request,) = said
    assert request.shards
    return at - failed_at


@pytest.mark.parametrize(
    ("failures", "pause"),
    [(1, 0), *((n, LIMITS.pause_seconds * 2 ** (n - 2)) for n in (2, 3, 5)), (100, LIMITS.longest_pause_seconds)],
)
def test_failures_in_a_row_make_a_pause_that_doubles(trigger, failures, pause):
    fail(trigger, failures, at=1000)
    assert started_after(trigger, 1000) == pause


def test_failed_ratings_make_a_pause_and_failed_gates_none(trigger):
    for purpose, pause in (("gate", 0), ("rating", LIMITS.pause_seconds)):
        trigger.settle()
        trigger.feed(unrated(purpose=purpose), unrated(purpose=purpose), at=1000)
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
