"""The simple rules of the scheduler, the trigger, the evaluation request and the promotion."""

from collections.abc import Iterable
from typing import Any

import pytest

from app.config import GAMES, RunSettings
from app.core import Rate
from app.events import (
    ClockTick,
    Emission,
    EvaluationCompleted,
    EvaluationFailed,
    EvaluationRequested,
    Event,
    MatchResult,
    ModelDistributed,
    ModelPromoted,
    Payload,
    PromotionRejected,
    QualityDegraded,
    QualityScoreUpdated,
    Reducer,
    RunConfigured,
    SelfplayFailed,
    SelfplayRequested,
    ShardRef,
    TrainingCompleted,
    TrainingFailed,
    TrainingRequested,
    follow,
)
from app.feedback import FeedbackLoopController, ModelLifecycleCoordinator, SelfplayScheduler, TrainingTrigger

KEY = "tic_tac_toe_2p"
NEED = GAMES[KEY].rows_per_training
SETTINGS = RunSettings(configs=(GAMES[KEY],))
OLD, NEW = "a" * 64, "b" * 64
TICK = ClockTick(period_seconds=10)
CONFIGURED = RunConfigured(run_id="r", settings=SETTINGS.model_dump(mode="json"))


class Driven:
    """A reducer with its rows, fed event by event."""

    def __init__(self, reducer: Reducer[Any]) -> None:
        self.reducer, self.rows = reducer, dict[str, Any]()

    def feed(self, *events: Event[Payload]) -> list[Payload]:
        return [emission.data for event in events for emission in self.emissions(event)]

    def emissions(self, event: Event[Payload]) -> Iterable[Emission]:
        step = self.reducer.step(dict(self.rows), event, {})
        for key, row in step.rows.items():
            self.rows[key] = row
            if row is None:
                del self.rows[key]
        assert all(type(emission.data) in self.reducer.emits for emission in step.emissions)
        return step.emissions


def scored(model: str = OLD, rows: int = NEED, score: float = 0.9, request: str = "q") -> QualityScoreUpdated:
    shard = ShardRef(key="c" * 64, rows=rows, games=10, model=model, seed=1)
    return QualityScoreUpdated(request_id=request, shard=shard, score=score, components={})


def distributed(model: str = OLD, step: int = 0) -> ModelDistributed:
    return ModelDistributed(model=model, step=step, nodes=("laptop",))


def evaluated(model: str = NEW, wins: int = 50, against: str | None = OLD) -> EvaluationCompleted:
    match = MatchResult(
        opponent="champion" if against else "random",
        opponent_model=against,
        games=100,
        wins=wins,
        draws=0,
        losses=100 - wins,
        score=Rate.of(wins, 100),
    )
    return EvaluationCompleted(
        request_id="e", model=model, step=1, results=(match,), elo=9.0, elo_stderr=3.0, seconds=1
    )


class TestSelfplayScheduler:
    @pytest.fixture
    def scheduler(self):
        return Driven(SelfplayScheduler(SETTINGS))

    def test_a_distributed_model_plays_at_once(self, scheduler, record):
        (request,) = scheduler.feed(record(distributed(), KEY))
        assert isinstance(request, SelfplayRequested)
        assert (request.model, request.games) == (OLD, GAMES[KEY].selfplay.games_per_request)
        assert request.worker in SETTINGS.selfplay_workers

    def test_it_remembers_the_id_its_request_will_have(self, scheduler, record):
        event = record(distributed(), KEY)
        (emission,) = scheduler.emissions(event)
        written = follow(emission.data, event.cause, by=SelfplayScheduler.name, index=0, subject=KEY)
        assert scheduler.rows[KEY].outstanding == written.id

    def test_it_asks_again_until_the_rows_suffice(self, scheduler, record):
        scheduler.feed(record(distributed(), KEY))
        asked = scheduler.feed(record(scored(rows=NEED - 1, request=scheduler.rows[KEY].outstanding), KEY))
        assert len(asked) == 1
        assert not scheduler.feed(record(scored(rows=1, request=scheduler.rows[KEY].outstanding), KEY))

    def test_every_request_has_a_seed_of_its_own(self, scheduler, record):
        seeds = {
            request.seed
            for step in range(20)
            for request in scheduler.feed(record(distributed(NEW if step % 2 else OLD, step), KEY))
        }
        assert len(seeds) == 20

    def test_rows_of_poor_quality_or_of_another_model_do_not_count(self, scheduler, record):
        scheduler.feed(record(distributed(), KEY))
        outstanding = scheduler.rows[KEY].outstanding
        assert not scheduler.feed(record(scored(model=NEW, request=outstanding), KEY))
        assert scheduler.feed(record(scored(score=0.29, request=outstanding), KEY))

    @pytest.mark.parametrize("failure", ["failed", "degraded"])
    def test_a_failure_is_repeated_by_the_next_tick_not_at_once(self, scheduler, record, failure):
        scheduler.feed(record(distributed(), KEY))
        request = scheduler.rows[KEY].outstanding
        fact = (
            SelfplayFailed(request_id=request, worker="w", error="no")
            if failure == "failed"
            else QualityDegraded(request_id=request, shard="c" * 64, reason="parity")
        )
        assert not scheduler.feed(record(fact, KEY, at=1000))
        assert len(scheduler.feed(record(TICK, at=1001))) == 1

    def test_a_request_without_an_answer_is_repeated_after_a_minute(self, scheduler, record):
        scheduler.feed(record(distributed(), KEY, at=0))
        assert not scheduler.feed(record(TICK, at=59.9))
        assert len(scheduler.feed(record(TICK, at=60))) == 1
        assert not scheduler.feed(record(TICK, at=61))

    @pytest.mark.parametrize("end", ["rejected", "training failed", "evaluation failed"])
    def test_a_cycle_without_a_new_model_brings_new_games(self, scheduler, record, end):
        scheduler.feed(record(distributed(), KEY))
        scheduler.feed(record(scored(request=scheduler.rows[KEY].outstanding), KEY))
        assert len(scheduler.feed(record(_without_new_model(end, record), KEY))) == 1


def _without_new_model(end: str, record) -> Payload:
    if end == "rejected":
        lifecycle = Driven(ModelLifecycleCoordinator(SETTINGS))
        _, rejection = lifecycle.feed(record(evaluated(model=OLD), KEY), record(evaluated(wins=10), KEY))
        return rejection
    if end == "training failed":
        return TrainingFailed(request_id="t", reason="error", error="no")
    return EvaluationFailed(request_id="e", model=NEW, error="no")


class TestTrainingTrigger:
    @pytest.fixture
    def trigger(self, record):
        driven = Driven(TrainingTrigger(SETTINGS))
        (request,) = driven.feed(record(CONFIGURED))
        assert isinstance(request, TrainingRequested)
        assert request.base_model is None
        return driven

    def test_configured_again_it_asks_for_no_second_initial_model(self, trigger, record):
        assert not trigger.feed(record(CONFIGURED))

    def test_an_initial_model_that_failed_is_tried_again_by_the_next_tick(self, trigger, record):
        assert not trigger.feed(record(TICK))
        assert not trigger.feed(record(TrainingFailed(request_id="t", reason="error", error="no"), KEY))
        assert len(trigger.feed(record(TICK))) == 1
        assert not trigger.feed(record(TICK))

    def test_it_trains_when_the_rows_suffice_and_not_before(self, trigger, record):
        trigger.feed(record(distributed(), KEY))
        assert not trigger.feed(record(scored(rows=NEED - 1), KEY))
        (request,) = trigger.feed(record(scored(rows=1), KEY))
        assert request.base_model == OLD
        assert sum(shard.rows for shard in request.shards) == NEED

    def test_it_never_trains_twice_at_once_nor_twice_on_a_shard(self, trigger, record):
        trigger.feed(record(distributed(), KEY))
        assert len(trigger.feed(record(scored(), KEY))) == 1
        assert not trigger.feed(record(scored(), KEY))
        (second,) = trigger.feed(record(_without_new_model("rejected", record), KEY))
        assert len(second.shards) == 1

    def test_rows_of_another_model_or_of_poor_quality_are_left_alone(self, trigger, record):
        trigger.feed(record(distributed(), KEY))
        assert not trigger.feed(record(scored(model=NEW), KEY), record(scored(score=0.29), KEY))
        assert trigger.feed(record(scored(score=0.3), KEY))


class TestFeedbackLoopController:
    def test_every_training_is_followed_by_an_evaluation(self, record):
        driven = Driven(FeedbackLoopController(SETTINGS))
        trained = TrainingCompleted(request_id="t", model=NEW, parent=OLD, step=3, rows=10, metrics=None)
        (request,) = driven.feed(record(trained, KEY))
        assert isinstance(request, EvaluationRequested)
        assert (request.model, request.step) == (NEW, 3)

    def test_a_failed_evaluation_is_tried_three_times(self, record):
        driven = Driven(FeedbackLoopController(SETTINGS))
        trained = TrainingCompleted(request_id="t", model=NEW, parent=OLD, step=3, rows=10, metrics=None)
        failed = EvaluationFailed(request_id="e", model=NEW, error="no")
        events = [record(trained, KEY), *(record(failed, KEY) for _ in range(5))]
        requests = driven.feed(*events)
        assert len(requests) == 3
        assert len({request.seed for request in requests}) == 3


class TestModelLifecycleCoordinator:
    @pytest.fixture
    def lifecycle(self, record):
        driven = Driven(ModelLifecycleCoordinator(SETTINGS))
        (promoted,) = driven.feed(record(evaluated(model=OLD, wins=0, against=None), KEY))
        assert isinstance(promoted, ModelPromoted)
        assert promoted.previous is None
        return driven

    @pytest.mark.parametrize(("wins", "verdict"), [(40, PromotionRejected), (41, ModelPromoted), (90, ModelPromoted)])
    def test_rejected_when_the_interval_lies_below_one_half(self, lifecycle, record, wins, verdict):
        (decision,) = lifecycle.feed(record(evaluated(wins=wins), KEY))
        assert type(decision) is verdict
        assert (Rate.of(wins, 100).upper < 0.5) == (verdict is PromotionRejected)
        assert decision.evidence.games == 100

    def test_the_promoted_model_is_the_next_ones_measure(self, lifecycle, record):
        (first,) = lifecycle.feed(record(evaluated(), KEY))
        assert first.previous == OLD
        (second,) = lifecycle.feed(record(evaluated(model="d" * 64, wins=10, against=NEW), KEY))
        assert isinstance(second, PromotionRejected)
        assert second.current == NEW

    def test_the_current_model_evaluated_again_changes_nothing(self, lifecycle, record):
        assert not lifecycle.feed(record(evaluated(model=OLD, wins=0, against=None), KEY))
