"""SelfplayScheduler: demand, workers, leases, priorities, pace.

See ``test_scheduler_opponents`` for opponents.
"""

from collections import Counter

import pytest
from driving import KEY, NEED, NEW, OLD, OTHER_KEY, Driven, distributed, played, promoted, run_settings, scored, trained
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from app.config import GAMES, RunSettings
from app.controllers import SelfplayScheduler
from app.controllers.scheduler import NAME
from app.core import derive_id
from app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    CurriculumRebalanced,
    DaemonReady,
    DaemonStopped,
    EvaluationFailed,
    Event,
    Evidence,
    ExplorationBoost,
    HyperparameterUpdated,
    ModelRolledBack,
    NodeLost,
    NodeReturned,
    PromotionRejected,
    QualityDegraded,
    QualityPenaltyApplied,
    RunConfigured,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
    TrainingBlockedByQuality,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
    TrainingUnblocked,
)

TICK = ClockTick(period_seconds=10)


def ready(node: str = "laptop", capacity: int = 1) -> DaemonReady:
    return DaemonReady(daemon="selfplay_worker", node=node, position=0, capacity=capacity)


def lost(node: str = "laptop", silent_seconds: float = 9.0) -> NodeLost:
    return NodeLost(daemon="selfplay_worker", node=node, silent_seconds=silent_seconds)


RETURNED = NodeReturned(daemon="selfplay_worker", node="laptop", silent_seconds=40.0)


@pytest.fixture
def scheduler():
    driven = Driven(SelfplayScheduler)
    driven.feed(ready(), key=None)
    return driven


def unanswered(scheduler: Driven, key: str = KEY) -> list[Event[SelfplayRequested]]:
    """Return a configuration's undelivered requests, oldest first."""
    delivered = {event.data.request_id for event in scheduler.events if isinstance(event.data, SelfplayComplete)}
    asked = [event for event in scheduler.events if isinstance(event.data, SelfplayRequested)]
    return [event for event in asked if event.subject == key and event.id not in delivered]


def complete(scheduler: Driven, key: str = KEY, seconds: float = 1.0, at: float = 0.0) -> list:
    """Answer the oldest request, leaving its shard uninspected."""
    request = unanswered(scheduler, key)[0]
    return scheduler.feed(delivery(request.id, request.data, seconds), key=key, at=at)


def answer(scheduler: Driven, key: str = KEY, rows: int = 1, at: float = 0.0, seconds: float = 1.0) -> list:
    """Play and inspect the oldest request."""
    request = unanswered(scheduler, key)[0]
    requests = complete(scheduler, key, seconds, at)
    found = scored(rows=rows, model=request.data.model, request=request.id)
    whole = found.replace(shard=found.shard.replace(games=request.data.games))
    return requests + scheduler.feed(whole, key=key, at=at)


def delivery(request_id: str, request: SelfplayRequested, seconds: float = 1.0) -> SelfplayComplete:
    return played(model=request.model).replace(request_id=request_id, seconds=seconds)


def begin_training(scheduler: Driven, *shards: str) -> list:
    """Request a training on shards."""
    spent = tuple(scored(shard=shard).shard for shard in shards)
    request = TrainingRequested(base_model=OLD, shards=spent, step=0, seed=1, learning_rate=1e-3, epochs=1)
    return scheduler.feed(request)


def end_training(scheduler: Driven, model: str = NEW) -> list:
    """Finish the current training."""
    return scheduler.feed(trained(model).replace(request_id=scheduler.state().lineage.training))


SHARD = scored().shard.key
"""The shard of every answer."""


class TestDemand:
    def test_a_distributed_model_plays_at_once(self, scheduler):
        (request,) = scheduler.feed(distributed())
        assert isinstance(request, SelfplayRequested)
        assert (request.model, request.games) == (OLD, GAMES[KEY].selfplay.games_per_request)
        assert request.worker == "selfplay_worker@laptop"

    def test_answer_is_known_by_the_id_of_the_request(self, scheduler):
        scheduler.late = True
        (envelope,) = scheduler.envelopes(distributed())
        assert envelope.id == derive_id(NAME, scheduler.events[-1].id, 0)
        failed = SelfplayFailed(request_id="another", worker="w", error="no")
        assert not scheduler.feed(failed, TICK, at=1)
        assert scheduler.feed(failed.replace(request_id=envelope.id), TICK, at=2)

    def test_it_asks_again_until_the_rows_suffice(self, scheduler):
        scheduler.feed(distributed())
        assert len(answer(scheduler, rows=NEED - 1)) == 1
        assert not answer(scheduler, rows=1)

    def test_as_many_play_at_once_as_make_a_training(self, scheduler):
        for node in "abcdef":
            scheduler.feed(ready(node), key=None)
        scheduler.feed(distributed())
        asked = answer(scheduler, rows=NEED // 4)
        assert len(asked) == 3
        assert len({request.worker for request in asked}) == 3
        assert not answer(scheduler, rows=NEED // 4)

    def test_before_the_first_shard_one_request_has_to_suffice(self, scheduler):
        scheduler.feed(ready("other"), key=None)
        assert len(scheduler.feed(distributed())) == 1
        assert not scheduler.feed(TICK, key=None, at=20)

    @staticmethod
    def searching() -> Driven:
        """Return a scheduler of a configuration whose rows outlive their model."""
        config = GAMES[KEY].replace(replay_rows=1000)
        scheduler = Driven(SelfplayScheduler, RunSettings(configs=(config,)))
        scheduler.feed(ready(), key=None)
        scheduler.settle(OLD)
        return scheduler

    def test_searched_games_under_way_count_after_a_training(self):
        scheduler = self.searching()
        answer(scheduler, rows=NEED // 2)
        begin_training(scheduler, SHARD)
        end_training(scheduler)
        assert len(scheduler.feed(promoted(NEW), distributed(NEW))) == 1, "for the half that is not under way"
        assert not answer(scheduler, rows=NEED // 2)

    def test_no_searched_games_begin_during_a_training(self):
        """Two trainings in a row would learn from one model's searches."""
        scheduler = self.searching()
        answer(scheduler, rows=NEED)
        assert not begin_training(scheduler, SHARD)
        assert not end_training(scheduler)
        (request,) = scheduler.feed(promoted(NEW), distributed(NEW))
        assert request.model == NEW

    def test_searched_games_of_a_rolled_back_model_are_replaced(self):
        scheduler = self.searching()
        answer(scheduler, rows=NEED // 2)
        begin_training(scheduler, SHARD)
        end_training(scheduler)
        scheduler.feed(promoted(NEW), distributed(NEW, 1))
        assert [request.data.model for request in unanswered(scheduler)] == [OLD, NEW]
        back = ModelRolledBack(from_model=NEW, to_model=OLD, step=0, reason="weaker")
        requests = scheduler.feed(back, distributed(OLD))
        assert [request.model for request in requests] == [OLD, OLD], "the workers dropped both"

    def test_requests_for_a_replaced_model_are_not_awaited(self, scheduler):
        scheduler.feed(ready("other"), distributed(), key=KEY)
        answer(scheduler, rows=NEED // 4)
        assert unanswered(scheduler)
        requests = scheduler.feed(distributed(NEW, 1))
        assert [request.model for request in requests] == [NEW] * 4, "as many as make a training, nothing counted"

    def test_every_request_has_a_seed_of_its_own(self, scheduler):
        seeds = {scheduler.feed(distributed(NEW if n % 2 else OLD, n))[0].seed for n in range(20)}
        assert len(seeds) == 20

    def test_rows_of_poor_quality_or_of_another_model_do_not_count(self, scheduler):
        scheduler.feed(distributed())
        scheduler.feed(scored(model=NEW), scored(0.29))
        assert len(answer(scheduler, rows=NEED - 1)) == 1

    @pytest.mark.parametrize("end", ["rejected", "unrated", "failed"])
    def test_a_cycle_without_a_new_model_brings_new_games(self, scheduler, end):
        scheduler.feed(distributed())
        assert not answer(scheduler, rows=NEED)
        assert not begin_training(scheduler, SHARD)
        if end == "failed":
            training = scheduler.state().lineage.training
            assert len(scheduler.feed(TrainingFailed(request_id=training, reason="diverged", error="NaN"))) == 1
            return
        assert not end_training(scheduler)
        evidence = Evidence(evaluation_id="e", statistic="x", value=0, threshold=0, games=1, elo=0, elo_stderr=1)
        rejection = PromotionRejected(model=NEW, current=OLD, step=1, evidence=evidence)
        assert len(scheduler.feed(rejection if end == "rejected" else self.unrated(NEW))) == 1

    @staticmethod
    def unrated(model):
        return EvaluationFailed(request_id="e", purpose="rating", model=model, error="no")

    @pytest.mark.parametrize("model", [OLD, "d" * 64], ids=["the current model", "a stranger"])
    def test_failed_rating_of_no_candidate_brings_no_games(self, scheduler, model):
        scheduler.feed(distributed())
        assert not answer(scheduler, rows=NEED)
        assert not begin_training(scheduler, SHARD)
        assert not end_training(scheduler)
        assert not scheduler.feed(self.unrated(model))
        assert len(scheduler.feed(self.unrated(NEW))) == 1
        assert not scheduler.feed(self.unrated(NEW))

    def test_nothing_is_played_until_a_new_model_is_distributed(self, scheduler):
        scheduler.settle()
        assert not answer(scheduler, rows=NEED)
        assert not begin_training(scheduler, SHARD)
        assert not scheduler.feed(TICK, at=1000)
        assert not end_training(scheduler)
        assert not scheduler.feed(promoted(NEW))
        assert not scheduler.feed(TICK, at=2000)
        (request,) = scheduler.feed(distributed(NEW, 1))
        assert request.model == NEW

    @pytest.mark.parametrize(("late_rows", "requests"), [(NEED, 0), (NEED - 1, 1)])
    def test_rows_that_come_during_a_training_count(self, scheduler, late_rows, requests):
        scheduler.feed(distributed())
        assert not answer(scheduler, rows=NEED)
        begin_training(scheduler, SHARD)
        late = scored(rows=late_rows, shard="d" * 64)
        assert not scheduler.feed(late.replace(shard=late.shard.replace(games=GAMES[KEY].selfplay.games_per_request)))
        end_training(scheduler)
        assert len(scheduler.feed(self.unrated(NEW))) == requests

    @pytest.mark.parametrize(("spent", "requests"), [(SHARD, 1), ("d" * 64, 0)], ids=["its rows", "others"])
    def test_only_rows_that_a_training_takes_are_gone(self, scheduler, spent, requests):
        scheduler.feed(distributed())
        assert not answer(scheduler, rows=NEED)
        begin_training(scheduler, spent)
        end_training(scheduler)
        assert len(scheduler.feed(self.unrated(NEW))) == requests

    @pytest.mark.parametrize("failure", ["failed", "degraded", "poor"])
    def test_a_failure_is_repeated_by_a_later_sweep_not_at_once(self, scheduler, failure):
        scheduler.feed(distributed())
        request = unanswered(scheduler)[0].id
        facts = {
            "failed": SelfplayFailed(request_id=request, worker="w", error="no"),
            "degraded": QualityDegraded(
                request_id=request, worker="selfplay_worker@laptop", shard="c" * 64, reason="parity"
            ),
            "poor": scored(0.1, request=request),
        }
        assert not scheduler.feed(facts[failure], at=1000)
        assert len(scheduler.feed(TICK, key=None, at=1001)) == 1


class TestWorkers:
    def test_without_a_worker_configurations_wait(self):
        scheduler = Driven(SelfplayScheduler)
        assert not scheduler.feed(distributed())
        (request,) = scheduler.feed(ready("far"), key=None)
        assert request.worker == "selfplay_worker@far"

    def test_a_worker_gets_twice_its_capacity_and_no_more(self):
        keys = list(GAMES)[:5]
        scheduler = Driven(SelfplayScheduler, run_settings(*keys))
        scheduler.feed(ready(capacity=2), key=None)
        asked = [request for key in keys for request in scheduler.feed(distributed(), key=key)]
        assert len(asked) == 4
        assert len(complete(scheduler, keys[0])) == 1

    def test_requests_go_to_whoever_has_room(self):
        keys = list(GAMES)[:4]
        scheduler = Driven(SelfplayScheduler, run_settings(*keys))
        for node in ("a", "b"):
            scheduler.feed(ready(node), key=None)
        asked = [request for key in keys for request in scheduler.feed(distributed(), key=key)]
        assert Counter(request.worker for request in asked) == {"selfplay_worker@a": 2, "selfplay_worker@b": 2}

    def test_idle_workers_come_before_busy_ones(self):
        keys = list(GAMES)[:3]
        scheduler = Driven(SelfplayScheduler, run_settings(*keys))
        for node in ("a", "b", "c"):
            scheduler.feed(ready(node), key=None)
        asked = [request for key in keys for request in scheduler.feed(distributed(), key=key)]
        assert len({request.worker for request in asked}) == 3

    @pytest.mark.parametrize(("seconds", "waits"), [(10.0, True), (10.1, False)])
    def test_long_requests_do_not_wait_at_a_busy_worker(self, seconds, waits):
        one, other = list(GAMES)[:2]
        scheduler = Driven(SelfplayScheduler, run_settings(one, other))
        scheduler.feed(ready(), key=None)
        assert [len(scheduler.feed(distributed(), key=key)) for key in (one, other)] == [1, 1]
        assert len(answer(scheduler, one, seconds=seconds)) == waits
        assert len(complete(scheduler, other)) == 1, "now there is room"

    def test_request_of_a_lost_worker_goes_to_another_at_once(self, scheduler):
        scheduler.feed(distributed(), at=0)
        scheduler.feed(ready("other"), key=None, at=25)
        (request,) = scheduler.feed(lost(), key=None, at=31)
        assert request.worker == "selfplay_worker@other"

    def test_worker_keeps_requests_when_its_node_s_other_daemon_dies(self, scheduler):
        scheduler.feed(distributed(), at=0)
        scheduler.feed(ready("other"), key=None, at=1)
        assert not scheduler.feed(lost().replace(daemon="training"), lost("unknown"), key=None, at=2)

    def test_scheduler_hands_on_the_work_of_a_stopped_node(self, scheduler):
        scheduler.feed(distributed(), at=0)
        scheduler.feed(ready("other"), key=None, at=1)
        stopped = DaemonStopped(daemon="selfplay_worker", node="laptop", position=0)
        (request,) = scheduler.feed(stopped, key=None, at=2)
        assert request.worker == "selfplay_worker@other"

    def test_scheduler_asks_a_node_again_that_comes_back(self, scheduler):
        """The node stops in good order and starts again an hour later."""
        scheduler.feed(distributed(), at=0)
        stopped = DaemonStopped(daemon="selfplay_worker", node="laptop", position=0)
        assert not scheduler.feed(stopped, key=None, at=2)
        assert not scheduler.feed(TICK, key=None, at=3600)
        (request,) = scheduler.feed(ready(), key=None, at=3601)
        assert isinstance(request, SelfplayRequested)

    @pytest.mark.parametrize(
        "again",
        [ready(), RETURNED],
        ids=["started again", "heard again"],
    )
    def test_lost_worker_that_comes_back_gets_games_again(self, scheduler, again):
        assert not scheduler.feed(lost(), key=None, at=100)
        assert not scheduler.feed(distributed(), at=101)
        assert not scheduler.feed(TICK, key=None, at=102)
        assert len(scheduler.feed(again, key=None, at=103)) == 1

    def test_worker_that_returns_owes_nothing_of_what_it_had(self, scheduler):
        scheduler.feed(distributed(), at=0)
        (first,) = unanswered(scheduler)
        scheduler.feed(lost(), key=None, at=10)
        (again,) = scheduler.feed(
            NodeReturned(daemon="selfplay_worker", node="laptop", silent_seconds=9.5), key=None, at=40
        )
        assert again.worker == first.data.worker
        assert not scheduler.feed(delivery(first.id, first.data), at=41), "nobody waits for it"

    def test_unanswered_request_is_repeated_after_four_deadlines(self, scheduler):
        longest = 4 * scheduler.settings.deadlines.selfplay_seconds
        scheduler.feed(distributed(), at=0)
        assert not scheduler.feed(TICK, key=None, at=longest - 1)
        assert [type(p) for p in scheduler.feed(TICK, key=None, at=longest)] == [SelfplayRequested]

    def test_uninspected_shard_is_awaited_for_its_lease(self, scheduler):
        lease = scheduler.settings.feedback.scheduler.lease_seconds
        scheduler.feed(distributed(), at=0)
        assert not complete(scheduler, at=100)
        assert not scheduler.feed(TICK, key=None, at=99 + lease)
        assert [type(p) for p in scheduler.feed(TICK, key=None, at=100 + lease)] == [SelfplayRequested]

    def test_worker_of_a_removed_configuration_may_be_lost(self):
        scheduler = Driven(SelfplayScheduler, run_settings(KEY, OTHER_KEY))
        scheduler.feed(ready(), key=None)
        scheduler.feed(distributed(), key=OTHER_KEY)
        fewer = RunConfigured(run_id="run", settings=run_settings(KEY).model_dump(mode="json"))
        scheduler.feed(fewer, key=None, at=1)
        assert not scheduler.feed(lost(), key=None, at=31)

    def test_a_configuration_that_is_taken_up_again_plays_on(self):
        """The configuration left the run while waiting, and its turn came meanwhile."""
        scheduler = Driven(SelfplayScheduler, run_settings(KEY, OTHER_KEY))
        scheduler.feed(distributed(), key=OTHER_KEY)
        both, fewer = (
            RunConfigured(run_id="run", settings=run_settings(*keys).model_dump(mode="json"))
            for keys in ((KEY, OTHER_KEY), (KEY,))
        )
        scheduler.feed(fewer, key=None, at=1)
        assert not scheduler.feed(ready(), key=None, at=2)
        scheduler.feed(both, key=None, at=3)
        said = [p for second in range(4, 60) for p in scheduler.feed(TICK, key=None, at=second)]
        assert [type(payload) for payload in said] == [SelfplayRequested]

    @pytest.mark.parametrize("rate", [1e-6, 1e-3, 0.01])
    def test_no_rate_is_so_low_that_no_game_is_played_any_more(self, scheduler, rate):
        penalty = QualityPenaltyApplied(rate_multiplier=rate, quality_score=0.1, threshold=0.3)
        scheduler.feed(distributed(), penalty)
        assert not answer(scheduler, rows=NEED // 2, seconds=1.0, at=1)
        said = {at: scheduler.feed(TICK, key=None, at=at) for at in (99, 100)}
        assert [at for at, requests in said.items() if requests] == [100]

    def test_no_capacity_brings_more_requests_than_are_needed(self, scheduler):
        scheduler.feed(DaemonReady(daemon="selfplay_worker", node="huge", position=0, capacity=10**12), key=None)
        assert len(scheduler.feed(distributed())) == 1
        assert len(answer(scheduler, rows=NEED // 4)) == 3

    def test_other_daemons_are_no_workers(self):
        scheduler = Driven(SelfplayScheduler)
        scheduler.feed(DaemonReady(daemon="training", node="x", position=0, capacity=9), key=None)
        assert not scheduler.feed(distributed())


def shares(weights: dict[str, float], turns: int = 300) -> dict[str, float]:
    """Return configurations' shares of one busy worker's turns.

    The curriculum weights are given by configuration key.
    """
    scheduler = Driven(SelfplayScheduler, run_settings(*weights))
    scheduler.feed(ready(), key=None)
    scheduler.feed(CurriculumRebalanced(weights=weights, reason="x"), key=None)
    queue = [envelope for key in weights for envelope in scheduler.envelopes(distributed(), key=key)]
    counts = Counter[str]()
    while sum(counts.values()) < turns:
        request = queue.pop(0)
        counts[request.subject] += 1
        shard = scored(rows=1, model=request.data.model, request=request.id)
        for fact in (delivery(request.id, request.data), shard):
            queue += scheduler.envelopes(fact, key=request.subject)
    return {key: counts[key] / turns for key in weights}


class TestPriority:
    def test_equal_weights_share_equally(self):
        found = shares(dict.fromkeys(list(GAMES)[:4], 1.0))
        assert all(share == pytest.approx(0.25, abs=0.02) for share in found.values())

    def test_shares_are_as_the_weights(self):
        weights = dict(zip(list(GAMES)[:16], (2.0, *[1.0] * 7, *[0.5] * 8), strict=True))
        found = shares(weights, turns=1100)
        unit = 1 / sum(weights.values())
        assert all(found[key] == pytest.approx(weight * unit, rel=0.1) for key, weight in weights.items())

    def test_nobody_starves(self):
        keys = list(GAMES)
        found = shares({key: 2.0 if n else 0.001 for n, key in enumerate(keys)}, turns=600)
        assert found[keys[0]] >= 0.25 / len(keys) * 0.8

    @settings(max_examples=examples(25))
    @given(weights=st.lists(st.sampled_from([0.001, 0.5, 1.0, 2.0, 1000.0]), min_size=2, max_size=5))
    def test_no_weights_leave_less_than_a_quarter_of_an_equal_share(self, weights):
        found = shares(dict(zip(GAMES, weights, strict=False)), turns=200)
        assert min(found.values()) >= 0.25 / len(weights)


class TestPace:
    def test_a_penalty_halves_the_rate(self, scheduler):
        scheduler.feed(distributed(), at=0)
        scheduler.feed(QualityPenaltyApplied(rate_multiplier=0.5, quality_score=0.1, threshold=0.3), at=1)
        assert not answer(scheduler, rows=NEED - 1, seconds=10.0, at=10), "as long as the games took, it waits"
        assert not scheduler.feed(TICK, key=None, at=19)
        assert len(scheduler.feed(TICK, key=None, at=20)) == 1

    def test_a_penalty_holds_for_games_too_poor_to_train_on(self, scheduler):
        scheduler.feed(distributed(), at=0)
        scheduler.feed(QualityPenaltyApplied(rate_multiplier=0.5, quality_score=0.1, threshold=0.3), at=1)
        request = unanswered(scheduler)[0].id
        complete(scheduler, seconds=100.0, at=100)
        scheduler.feed(scored(0.1, request=request), at=100)
        said = {at: scheduler.feed(TICK, key=None, at=at) for at in range(101, 300, 10)}
        assert [at for at, requests in said.items() if requests] == [201]

    def test_lifted_it_plays_at_once_again(self, scheduler):
        scheduler.feed(distributed(), at=0)
        for rate in (0.5, 1.0):
            scheduler.feed(QualityPenaltyApplied(rate_multiplier=rate, quality_score=0.4, threshold=0.4), at=1)
        assert len(answer(scheduler, rows=NEED - 1, seconds=10.0, at=10)) == 1

    @pytest.mark.parametrize("reason", ["blocked", "paused"])
    def test_without_training_it_still_plays_now_and_then(self, scheduler, reason):
        scheduler.feed(distributed(), at=0)
        scheduler.feed(
            TrainingBlockedByQuality(reason="parity")
            if reason == "blocked"
            else TrainingIntensityChanged(intensity="paused", previous="normal", quality_score=0.2),
            at=1,
        )
        assert not answer(scheduler, rows=10 * NEED, at=10)
        said = [p for at in range(11, 200, 10) for p in scheduler.feed(TICK, key=None, at=at)]
        assert len(said) == 1

    def test_it_waits_for_one_turn_however_often_it_is_looked_at(self, scheduler):
        scheduler.feed(distributed(), TrainingBlockedByQuality(reason="parity"), at=0)
        answer(scheduler, rows=NEED // 2, at=1)
        decided = HyperparameterUpdated(parameter="epochs", value=4, previous=4, reason="x")
        said = {at: scheduler.feed(TICK, decided, at=at) for at in range(2, 700, 50)}
        assert [at for at, requests in said.items() if requests] == [102]

    def test_how_often_is_a_setting(self):
        scheduler = Driven(SelfplayScheduler, run_settings(scheduler={"idle_seconds": 5.0}))
        scheduler.feed(ready(), key=None)
        scheduler.feed(distributed(), TrainingBlockedByQuality(reason="parity"), at=0)
        assert not answer(scheduler, rows=NEED // 2, seconds=1.0, at=1)
        assert not scheduler.feed(TICK, key=None, at=5.9)
        assert len(scheduler.feed(TICK, key=None, at=6)) == 1

    @pytest.mark.parametrize(
        ("cause", "end"),
        [
            (TrainingBlockedByQuality(reason="parity"), TrainingUnblocked(reason="clean")),
            (
                TrainingIntensityChanged(intensity="paused", previous="normal", quality_score=0.2),
                TrainingIntensityChanged(intensity="normal", previous="paused", quality_score=0.6),
            ),
            (
                QualityPenaltyApplied(rate_multiplier=0.01, quality_score=0.1, threshold=0.3),
                QualityPenaltyApplied(rate_multiplier=1.0, quality_score=0.4, threshold=0.4),
            ),
        ],
        ids=["blocked", "paused", "penalised"],
    )
    def test_when_the_cause_ends_it_plays_at_once_and_as_before(self, scheduler, cause, end):
        scheduler.feed(distributed(), cause, at=0)
        assert not answer(scheduler, rows=NEED // 2, seconds=1.0, at=10), "its time comes later"
        assert len(scheduler.feed(end, at=20)) == 1
        later = [p for at in range(21, 200) for p in scheduler.feed(TICK, key=None, at=at)]
        assert not later, "its former place in the queue is no second turn"

    def test_games_that_took_longer_than_any_do_not_end_them(self, scheduler):
        scheduler.feed(distributed(), QualityPenaltyApplied(rate_multiplier=0.5, quality_score=0.1, threshold=0.3))
        lease = scheduler.settings.feedback.scheduler.lease_seconds
        assert not answer(scheduler, rows=NEED // 2, seconds=1e9, at=1)
        assert len(scheduler.feed(TICK, key=None, at=4 * lease)) == 1

    def test_a_shard_of_any_number_of_rows_makes_one_training(self, scheduler):
        scheduler.feed(distributed())
        assert not answer(scheduler, rows=10**12)
        assert not scheduler.feed(TICK, key=None, at=10)

    def test_rows_that_no_training_takes_are_played_again(self, scheduler):
        """The trigger may lack rows that the scheduler counts.

        Their training request was voided, or its configuration was out of the run.
        """
        scheduler.feed(distributed())
        answer(scheduler, rows=NEED)
        limits = scheduler.settings.feedback
        overdue = limits.trigger.cooldown_seconds + limits.scheduler.lease_seconds
        assert not scheduler.feed(TICK, key=None, at=overdue)
        assert scheduler.feed(TICK, key=None, at=overdue + 1)

    def test_unblocked_it_plays_as_before(self, scheduler):
        scheduler.feed(distributed(), TrainingBlockedByQuality(reason="parity"), TrainingUnblocked(reason="clean"))
        assert len(answer(scheduler, rows=NEED - 1)) == 1


class TestSettingsThatWereDecided:
    def test_an_exploration_boost_raises_the_temperature(self, scheduler):
        scheduler.feed(ExplorationBoost(multiplier=1.5, lasts_seconds=7200, reason="stall"))
        (request,) = scheduler.feed(distributed())
        assert request.temperature == 1.5 * GAMES[KEY].selfplay.temperature

    def test_a_base_temperature_replaces_the_configured_one(self, scheduler):
        scheduler.feed(distributed())
        scheduler.feed(HyperparameterUpdated(parameter="base_temperature", value=0.8, previous=1, reason="x"))
        (request,) = answer(scheduler, rows=NEED - 1)
        assert request.temperature == 0.8

    def test_what_was_decided_before_the_first_model_holds(self, scheduler):
        scheduler.feed(HyperparameterUpdated(parameter="base_temperature", value=0.8, previous=1, reason="x"))
        (request,) = scheduler.feed(distributed())
        assert request.temperature == 0.8

    @pytest.mark.parametrize(("asked", "set_to"), [(-1.0, 0.5), (0.0, 0.5), (1e9, 10.0)])
    def test_an_operators_base_temperature_stays_within_the_bounds(self, scheduler, asked, set_to):
        """A value that a request's payload refuses would end the scheduler.

        It would also end every replay at the next request.
        """
        scheduler.feed(HyperparameterUpdated(parameter="base_temperature", value=asked, previous=1, reason="x"))
        (request,) = scheduler.feed(distributed())
        assert request.temperature == set_to

    def test_more_games_per_iteration_are_more_requests(self, scheduler):
        usual = GAMES[KEY].selfplay.games_per_request
        scheduler.feed(distributed())
        decided = AdaptiveParamsChanged(epochs=3, games_per_iteration=2 * usual, learning_rate=1e-3, reason="x")
        scheduler.feed(decided)
        (request,) = answer(scheduler, rows=NEED)
        assert request.games == usual
        assert not answer(scheduler, rows=NEED)


def test_another_configuration_is_not_touched(scheduler):
    scheduler.feed(distributed())
    scheduler.feed(QualityPenaltyApplied(rate_multiplier=0.5, quality_score=0.1, threshold=0.3), key=OTHER_KEY)
    assert len(answer(scheduler, rows=NEED - 1)) == 1
