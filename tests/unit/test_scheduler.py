"""SelfplayScheduler: demand, workers, leases, priorities, pace. See ``test_opponents`` for opponents."""

from collections import Counter
from math import ceil

import pytest
from builders import (
    adapted,
    configured,
    intensity,
    ready,
    rejected,
    rolled_back,
    training_failed,
    tuned,
    unrated,
)
from driving import KEY, NEED, NEW, OLD, OTHER_KEY, Driven, distributed, promoted, run_settings, scored
from scheduling import SHARD, answer, begin_training, complete, delivery, end_training, joined, staffed, unanswered

from flyball.app.config import GAMES, RunSettings
from flyball.app.controllers import SelfplayScheduler
from flyball.app.controllers.fair_queue import LARGEST_REQUEST, WorkerRow
from flyball.app.controllers.scheduler import NAME
from flyball.app.core import derive_id
from flyball.app.events import (
    ClockTick,
    DaemonStopped,
    ExplorationBoost,
    NodeLost,
    NodeReturned,
    QualityDegraded,
    QualityPenaltyApplied,
    SelfplayFailed,
    SelfplayRequested,
    TrainingBlockedByQuality,
    TrainingUnblocked,
)
from flyball.app.play.search import TREES

TICK = ClockTick(period_seconds=10)


def lost(node: str = "laptop", silent_seconds: float = 9.0) -> NodeLost:
    return NodeLost(daemon="selfplay_worker", node=node, silent_seconds=silent_seconds)


def penalty(rate: float) -> QualityPenaltyApplied:
    return QualityPenaltyApplied(rate_multiplier=rate, quality_score=0.1, threshold=0.3)


RETURNED = NodeReturned(daemon="selfplay_worker", node="laptop", silent_seconds=40.0)
STOPPED = DaemonStopped(daemon="selfplay_worker", node="laptop", position=0)
BLOCKED = TrainingBlockedByQuality(reason="parity")
PAUSED = intensity("paused", quality_score=0.2)


@pytest.fixture
def scheduler():
    return staffed()


@pytest.fixture
def playing(scheduler):
    """Return a scheduler with a first request."""
    scheduler.feed(distributed(), at=0)
    return scheduler


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

    def test_it_asks_again_until_the_rows_suffice(self, playing):
        playing.feed(scored(model=NEW), scored(0.29))  # of another model, or too poor
        assert len(answer(playing, rows=NEED - 1)) == 1
        assert not answer(playing, rows=1)

    @pytest.mark.parametrize("nodes", [dict.fromkeys("abcd", 1), {"huge": 10**12}])
    def test_as_many_play_at_once_as_make_a_training(self, nodes):
        scheduler = staffed(**nodes)
        assert len(scheduler.feed(distributed())) == 1, "before the first shard, nobody knows its rows"
        assert not scheduler.feed(TICK, key=None, at=20)
        requests = answer(scheduler, rows=NEED // 4)
        assert len(requests) == 3
        assert len({request.worker for request in requests}) == min(3, len(nodes))
        assert not answer(scheduler, rows=NEED // 4)

    @staticmethod
    def searching() -> Driven:
        """Return a scheduler of a configuration whose rows outlive their model."""
        scheduler = staffed(RunSettings(configs=(GAMES[KEY].replace(replay_rows=1000),)))
        scheduler.settle(OLD)
        return scheduler

    def test_searched_games_under_way_count_until_a_rollback(self):
        scheduler = self.searching()
        answer(scheduler, rows=NEED // 2)
        begin_training(scheduler, SHARD)
        end_training(scheduler)
        assert len(scheduler.feed(promoted(NEW), distributed(NEW, 1))) == 1, "for the half that is not under way"
        assert [request.data.model for request in unanswered(scheduler)] == [OLD, NEW]
        requests = scheduler.feed(rolled_back(NEW, OLD), distributed(OLD))
        assert [request.model for request in requests] == [OLD, OLD], "the workers dropped both"
        assert not answer(scheduler, rows=NEED // 2)

    def test_no_searched_games_begin_during_a_training(self):
        """Two trainings in a row would learn from one model's searches."""
        scheduler = self.searching()
        answer(scheduler, rows=NEED)
        assert not begin_training(scheduler, SHARD)
        assert not end_training(scheduler)
        (request,) = scheduler.feed(promoted(NEW), distributed(NEW))
        assert request.model == NEW

    def test_games_without_rows_are_not_asked_for_without_end(self):
        scheduler = staffed(laptop=10**12)
        scheduler.feed(distributed())
        request = unanswered(scheduler)[0]
        shard = scored(rows=1, model=OLD, request=request.id)
        hardly = shard.replace(shard=shard.shard.replace(games=10**12))
        assert len(scheduler.feed(delivery(request.id, request.data), hardly)) == 1000

    def test_requests_for_a_replaced_model_are_not_awaited(self, scheduler):
        scheduler.feed(joined("other"), distributed(), key=KEY)
        answer(scheduler, rows=NEED // 4)
        assert unanswered(scheduler)
        requests = scheduler.feed(distributed(NEW, 1))
        assert [request.model for request in requests] == [NEW] * 4, "as many as make a training, nothing counted"

    def test_every_request_has_a_seed_of_its_own(self, scheduler):
        seeds = {scheduler.feed(distributed(NEW if n % 2 else OLD, n))[0].seed for n in range(20)}
        assert len(seeds) == 20

    @pytest.mark.parametrize("end", [rejected(), unrated(), None], ids=["rejected", "unrated", "failed"])
    def test_a_cycle_without_a_new_model_brings_new_games(self, playing, end):
        assert not answer(playing, rows=NEED)
        assert not begin_training(playing, SHARD)
        if end is None:
            end = training_failed(playing.state().lineage.training, "diverged")
        else:
            assert not end_training(playing)
            assert not playing.feed(unrated(OLD), unrated("d" * 64)), "no candidate's"
        assert len(playing.feed(end)) == 1
        assert not playing.feed(unrated(NEW))

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
    def test_rows_that_come_during_a_training_count(self, playing, late_rows, requests):
        assert not answer(playing, rows=NEED)
        begin_training(playing, SHARD)
        late = scored(rows=late_rows, shard="d" * 64)
        assert not playing.feed(late.replace(shard=late.shard.replace(games=GAMES[KEY].selfplay.games_per_request)))
        end_training(playing)
        assert len(playing.feed(unrated())) == requests

    @pytest.mark.parametrize(("spent", "requests"), [(SHARD, 1), ("d" * 64, 0)], ids=["its rows", "others"])
    def test_only_rows_that_a_training_takes_are_gone(self, playing, spent, requests):
        assert not answer(playing, rows=NEED)
        begin_training(playing, spent)
        end_training(playing)
        assert len(playing.feed(unrated())) == requests

    @pytest.mark.parametrize(
        "failure",
        [
            SelfplayFailed(request_id="q", worker="w", error="no"),
            QualityDegraded(request_id="q", worker="selfplay_worker@laptop", shard="c" * 64, reason="parity"),
            scored(0.1),
        ],
        ids=["failed", "degraded", "poor"],
    )
    def test_a_failure_is_repeated_by_a_later_sweep_not_at_once(self, playing, failure):
        assert not playing.feed(failure.replace(request_id=unanswered(playing)[0].id), at=1000)
        assert len(playing.feed(TICK, key=None, at=1001)) == 1


class TestWorkers:
    def test_without_a_worker_configurations_wait(self):
        scheduler = Driven(SelfplayScheduler)
        scheduler.feed(ready("training", "x", capacity=9), key=None)
        assert not scheduler.feed(distributed())
        (request,) = scheduler.feed(joined("far"), key=None)
        assert request.worker == "selfplay_worker@far"

    @pytest.mark.parametrize(
        ("nodes", "configs", "shares"),
        [({"a": 2}, 5, [4]), ({"a": 1, "b": 1}, 4, [2, 2]), ({"a": 1, "b": 1, "c": 1}, 3, [1, 1, 1])],
        ids=["twice the capacity", "to those with room", "idle ones first"],
    )
    def test_requests_are_shared_among_workers(self, nodes, configs, shares):
        keys = list(GAMES)[:configs]
        scheduler = staffed(run_settings(*keys), **nodes)
        requests = [request for key in keys for request in scheduler.feed(distributed(), key=key)]
        found = Counter(request.worker for request in requests)
        assert found == {f"selfplay_worker@{node}": share for node, share in zip(nodes, shares, strict=True)}
        assert len(complete(scheduler, keys[0])) == configs - sum(shares), "the one that waits gets the room"

    @pytest.mark.parametrize(("seconds", "waits"), [(10.0, True), (10.1, False)])
    def test_long_requests_do_not_wait_at_a_busy_worker(self, seconds, waits):
        one, other = list(GAMES)[:2]
        scheduler = staffed(run_settings(one, other))
        assert [len(scheduler.feed(distributed(), key=key)) for key in (one, other)] == [1, 1]
        assert len(answer(scheduler, one, seconds=seconds)) == waits
        assert len(complete(scheduler, other)) == 1, "now there is room"

    @pytest.mark.parametrize(
        ("fact", "is_handed_on"),
        [(lost(), True), (STOPPED, True), (lost().replace(daemon="training"), False), (lost("unknown"), False)],
        ids=["lost", "stopped", "another daemon's node", "another node"],
    )
    def test_work_of_a_worker_that_is_gone_goes_to_another(self, playing, fact, is_handed_on):
        playing.feed(joined("other"), key=None, at=25)
        requests = playing.feed(fact, key=None, at=31)
        assert [request.worker for request in requests] == ["selfplay_worker@other"] * is_handed_on

    @pytest.mark.parametrize(
        ("gone", "again"),
        [(lost(), joined()), (lost(), RETURNED), (STOPPED, joined())],
        ids=["started again", "heard again", "stopped in good order"],
    )
    def test_worker_that_comes_back_gets_games_and_owes_none(self, playing, gone, again):
        (first,) = unanswered(playing)
        assert not playing.feed(gone, key=None, at=100)
        assert not playing.feed(distributed(NEW, 1), at=101)
        assert not playing.feed(TICK, key=None, at=3600)
        (request,) = playing.feed(again, key=None, at=3601)
        assert (request.worker, request.model) == (first.data.worker, NEW)
        assert not playing.feed(delivery(first.id, first.data), at=3602), "nobody waits for it"

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

    def test_removed_configurations_lose_workers_and_play_on(self):
        scheduler = staffed(run_settings(KEY, OTHER_KEY))
        scheduler.feed(distributed(), key=OTHER_KEY)
        scheduler.feed(configured(run_settings(KEY)), key=None, at=1)
        assert not scheduler.feed(lost(), key=None, at=31)
        scheduler = Driven(SelfplayScheduler, run_settings(KEY, OTHER_KEY))
        scheduler.feed(distributed(), key=OTHER_KEY)
        scheduler.feed(configured(run_settings(KEY)), key=None, at=1)
        assert not scheduler.feed(joined(), key=None, at=2)
        scheduler.feed(configured(run_settings(KEY, OTHER_KEY)), key=None, at=3)
        said = [p for second in range(4, 60) for p in scheduler.feed(TICK, key=None, at=second)]
        assert [type(payload) for payload in said] == [SelfplayRequested]


class TestPace:
    @pytest.mark.parametrize(
        ("causes", "seconds", "answered", "turn"),
        [
            ([penalty(0.5)], 10.0, 10, 20),  # it waits as long as the games took
            ([PAUSED, penalty(0.5)], 10.0, 10, 140),
            ([penalty(1e-6)], 1.0, 1, 100),
            ([penalty(1e-3)], 1.0, 1, 100),
            ([penalty(0.01)], 1.0, 1, 100),
            ([BLOCKED], 1.0, 1, 61),
            ([PAUSED], 1.0, 1, 61),
        ],
    )
    def test_slowed_configuration_waits_for_one_turn(self, scheduler, causes, seconds, answered, turn):
        """No rate is so low that no game is played, and looking more often changes nothing."""
        scheduler.feed(distributed(), *causes, at=0)
        assert not answer(scheduler, rows=NEED // 2, seconds=seconds, at=answered)
        others = tuned("epochs", 4, previous=4)
        said = {at: scheduler.feed(TICK, others, at=at) for at in range(answered + 1, turn + 99)}
        assert [at for at, requests in said.items() if requests] == [turn]

    def test_how_often_is_a_setting(self):
        scheduler = staffed(run_settings(scheduler={"idle_seconds": 5.0}))
        scheduler.feed(distributed(), BLOCKED, at=0)
        assert not answer(scheduler, rows=NEED // 2, seconds=1.0, at=1)
        assert not scheduler.feed(TICK, key=None, at=5.9)
        assert len(scheduler.feed(TICK, key=None, at=6)) == 1

    @pytest.mark.parametrize(
        ("cause", "end"),
        [
            (BLOCKED, TrainingUnblocked(reason="clean")),
            (PAUSED, intensity("normal", "paused", 0.6)),
            (penalty(0.01), penalty(1.0)),
        ],
        ids=["blocked", "paused", "penalised"],
    )
    def test_when_the_cause_ends_it_plays_at_once_and_as_before(self, scheduler, cause, end):
        scheduler.feed(distributed(), cause, at=0)
        assert not answer(scheduler, rows=NEED // 2, seconds=1.0, at=10), "its time comes later"
        assert len(scheduler.feed(end, at=20)) == 1
        later = [p for at in range(21, 200) for p in scheduler.feed(TICK, key=None, at=at)]
        assert not later, "its former place in the queue is no second turn"
        assert len(answer(scheduler, rows=1, at=200)) == 2, "for the half of the rows that is missing"

    def test_a_penalty_holds_for_games_too_poor_to_train_on(self, scheduler):
        scheduler.feed(distributed(), penalty(0.5), at=0)
        request = unanswered(scheduler)[0].id
        complete(scheduler, seconds=100.0, at=100)
        scheduler.feed(scored(0.1, request=request), at=100)
        said = {at: scheduler.feed(TICK, key=None, at=at) for at in range(101, 300, 10)}
        assert [at for at, requests in said.items() if requests] == [201]

    @pytest.mark.parametrize("cause", [BLOCKED, PAUSED], ids=["blocked", "paused"])
    def test_without_training_it_still_plays_now_and_then(self, scheduler, cause):
        scheduler.feed(distributed(), cause, at=0)
        assert not answer(scheduler, rows=10 * NEED, at=10)
        said = [p for at in range(11, 200, 10) for p in scheduler.feed(TICK, key=None, at=at)]
        assert len(said) == 1

    def test_games_that_took_longer_than_any_do_not_end_them(self, scheduler):
        scheduler.feed(distributed(), penalty(0.5))
        lease = scheduler.settings.feedback.scheduler.lease_seconds
        assert not answer(scheduler, rows=NEED // 2, seconds=1e9, at=1)
        assert len(scheduler.feed(TICK, key=None, at=4 * lease)) == 1

    @pytest.mark.parametrize("rows", [NEED, 10**12])
    def test_rows_that_no_training_takes_are_played_again(self, playing, rows):
        """The trigger may lack rows that the playing counts."""
        assert not answer(playing, rows=rows)
        limits = playing.settings.feedback
        overdue = limits.trigger.cooldown_seconds + limits.scheduler.lease_seconds
        assert not playing.feed(TICK, key=None, at=overdue)
        assert playing.feed(TICK, key=None, at=overdue + 1)


class TestSettingsThatWereDecided:
    @pytest.mark.parametrize("has_model", [False, True], ids=["before the first model", "after it"])
    @pytest.mark.parametrize(
        ("decided", "temperature"),
        [
            (ExplorationBoost(multiplier=1.5, lasts_seconds=72, reason="x"), 1.5 * GAMES[KEY].selfplay.temperature),
            (tuned("base_temperature", 0.8), 0.8),
            (tuned("base_temperature", -1.0), 0.5),
            (tuned("base_temperature", 0.0), 0.5),
            (tuned("base_temperature", 1e9), 10.0),
        ],
    )
    def test_temperature_is_decided_within_its_bounds(self, scheduler, has_model, decided, temperature):
        """A value that a request's payload refuses would end the scheduler."""
        if has_model:
            scheduler.feed(distributed())
        scheduler.feed(decided)
        (request,) = answer(scheduler, rows=NEED - 1) if has_model else scheduler.feed(distributed())
        assert request.temperature == temperature

    def test_more_games_per_iteration_are_more_requests(self, scheduler):
        usual = GAMES[KEY].selfplay.games_per_request
        scheduler.feed(distributed())
        scheduler.feed(adapted(games=2 * usual))
        (request,) = answer(scheduler, rows=NEED)
        assert request.games == usual
        assert not answer(scheduler, rows=NEED)


class TestSizeOfRequests:
    USUAL = GAMES[KEY].selfplay.games_per_request

    @staticmethod
    def asked(rows: int, need: int = NEED, **nodes: int) -> list[int]:
        """Return the games of the requests that follow when a search's first games brought ``rows``."""
        config = GAMES[KEY].replace(backend="search", rows_per_training=need)
        scheduler = staffed(RunSettings(configs=(config,)), **nodes)
        (first,) = scheduler.feed(distributed())
        assert first.games == TestSizeOfRequests.USUAL
        return [request.games for request in answer(scheduler, rows=rows)]

    def test_single_slot_is_asked_for_all_rows_lacking(self):
        assert self.asked(NEED // 4) == [ceil(1.05 * 3 * self.USUAL)]
        assert self.asked(NEED - 1) == [self.USUAL]

    def test_request_has_at_most_the_games_searched_at_once(self):
        assert LARGEST_REQUEST == TREES
        assert self.asked(NEED, need=40 * NEED, laptop=2)[:2] == [TREES, TREES]

    @pytest.mark.parametrize("nodes", [dict.fromkeys("abcdefgh", 1), {"ray": 8}])
    def test_slots_share_the_rows_lacking(self, nodes: dict[str, int]):
        assert self.asked(NEED // 4, **nodes) == [self.USUAL] * 3

    def test_two_slots_are_asked_for_half_of_a_training_each(self):
        assert self.asked(NEED // 4, laptop=2) == [ceil(1.05 * 2 * self.USUAL), self.USUAL]

    def test_request_after_a_failure_has_the_usual_size(self):
        config = GAMES[KEY].replace(backend="search", rows_per_training=NEED)
        scheduler = staffed(RunSettings(configs=(config,)))
        scheduler.feed(distributed())
        (larger,) = answer(scheduler, rows=NEED // 4)
        assert larger.games > self.USUAL
        failed = SelfplayFailed(request_id=unanswered(scheduler)[0].id, worker=larger.worker, error="too late")
        requests = scheduler.feed(failed, TICK, at=1)
        assert {request.games for request in requests} == {self.USUAL}


def test_another_configuration_is_not_touched(playing):
    playing.feed(penalty(0.5), key=OTHER_KEY)
    assert len(answer(playing, rows=NEED - 1)) == 1


@pytest.mark.parametrize(
    ("state", "places"),
    [({}, 6), ({"quarantined": True}, 1), ({"pauses": 1}, 1), ({"lost": True}, 0), ({"rests_until_us": 1}, 0)],
)
def test_worker_on_trial_has_one_place(state: dict[str, int], places: int) -> None:
    assert WorkerRow(capacity=3, asked_us=0, **state).job_slots(2) == places
    assert WorkerRow(capacity=0, asked_us=0, **state).job_slots(2) == 0
