"""Scenarios: targets, contents, and events of detection and recovery."""

import tomllib
from dataclasses import replace

import numpy as np
import pytest
from builders import rolled_back, training_of, tuned
from driving import KEY, NEW, OLD, OTHER_KEY, distributed, promoted, run_settings
from scenario_events import asked, boosted, known_after, played, trained_at
from selfplay_rig import put_model

from flyball.app.config import GAMES
from flyball.app.core import derive_id
from flyball.app.events import (
    ClockTick,
    CurriculumRebalanced,
    DaemonReady,
    Event,
    HyperparameterUpdated,
    ModelRolledBack,
    NodeLost,
    NodeQuarantined,
    ParityChecked,
    Payload,
    PlateauDetected,
    QualityDegraded,
    RegressionDetected,
    RollbackRequested,
    ShardRef,
    TrainingBlockedByQuality,
    TrainingUnblocked,
    follow,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.games import checker_for
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import bytes_to_parameters
from flyball.app.play.inspection import game_record
from flyball.app.scenarios import SCENARIOS, Plan, Watch, choose, views_of
from flyball.app.scenarios.plan import ConfigView, NotReady, Scenario
from flyball.app.scenarios.regression import store_reversed
from flyball.app.scenarios.stall import QUICK
from flyball.app.store import FileStore, MemoryStore, get_checkpoint, get_shard, put_checkpoint
from flyball.daemons.registry import DAEMONS

CONFIG = GAMES[KEY]


@pytest.fixture
def known() -> ConfigView:
    return known_after(promoted())


@pytest.fixture
def learned(tmp_path) -> tuple[ConfigView, FileStore]:
    model = put_model(tmp_path, CONFIG, scale=5.0)
    settings = run_settings(KEY, OTHER_KEY)
    return known_after(promoted(model, step=0), played("r"), settings=settings), FileStore(tmp_path)


class Story:
    """Events after a trouble, and a watch that classifies them. Events may have a cause or none."""

    def __init__(self, record, plan: Plan) -> None:
        self.plan, self.record = plan, record
        self.trouble = self.add(plan.trouble, key=plan.key or KEY)
        self.watch = Watch(plan, self.trouble)

    def add(self, data: Payload, cause: Event | None = None, key: str = KEY) -> Event:
        subject = None if data.scope == "system" else key
        event = self.record(data, subject)
        if cause is None:
            return event
        envelope = follow(data, cause.cause, by="x", index=event.sequence, subject=subject)
        return Event(envelope, event.sequence, event.recorded_us, "x@y")

    def tell(self, data: Payload, cause: Event | None = None, key: str = KEY, *, stage: str | None = None) -> Event:
        """Record an event of a stage; return it."""
        event = self.add(data, cause, key)
        seen = self.watch.feed(event)
        assert (seen and seen.stage) == stage
        return event


SHARD = ShardRef(worker="selfplay_worker@laptop", key="f" * 64, rows=9, games=1, model=OLD, seed=1)
WORKER = "selfplay_worker@liar"
PLATEAU = PlateauDetected(velocity=0.0, upper_bound=1.0, window_hours=6.0, least_gain=30.0)


def rebalanced(*plateaued: str) -> CurriculumRebalanced:
    return CurriculumRebalanced(weights={KEY: 1.0}, plateaued=plateaued, reason="x")


class TestKnown:
    def test_known_state_is_the_latest_recorded(self, record):
        events = [record(promoted(OLD), KEY), record(promoted(NEW, 500.0, 6), KEY), record(promoted(NEW), "go7_2p")]
        assert views_of(run_settings(), events)[KEY].promotion.elo == 500.0
        events.append(record(ModelRolledBack(from_model=NEW, to_model=OLD, step=5, reason="x"), KEY))
        found = views_of(run_settings(), events)
        assert (list(found), found[KEY].model, found[KEY].promotion.elo) == ([KEY], OLD, 400.0)
        history = (
            tuned("learning_rate", 3e-4),
            boosted(1.5),
            TrainingBlockedByQuality(reason="x"),
            played("r", "d" * 64),
        )
        found = views_of(run_settings(), [record(data, KEY) for data in history])[KEY]
        state = found.state
        assert (state.learning_rate, state.exploration_boost, state.training_block) == (3e-4, 1.5, "x")
        assert (found.shard, state.games_played) == ("d" * 64, 10)
        found.take(record(TrainingUnblocked(reason="x"), KEY))
        assert found.state.training_block is None


class TestChoosing:
    def test_first_configuration_that_lacks_nothing_is_chosen(self, record):
        known = views_of(run_settings(KEY, OTHER_KEY), [record(promoted(), OTHER_KEY)])
        assert choose(SCENARIOS["stall"], known, None, MemoryStore()).key == OTHER_KEY
        with pytest.raises(NotReady, match=f"stall can't be made now: {KEY} has no current model yet"):
            choose(SCENARIOS["stall"], {KEY: known_after()}, KEY, MemoryStore())
        settings = run_settings().replace(configs=(CONFIG.replace(knobs=("epochs",)),))
        known = views_of(settings, [record(promoted(), KEY)])
        with pytest.raises(NotReady, match="fixed learning rate"):
            choose(SCENARIOS["stall"], known, None, MemoryStore())

    @pytest.mark.parametrize(
        ("name", "so_far", "lack"),
        [
            ("regression", (), "no current model"),
            ("regression", (promoted(elo=140.0),), r"has \+140 Elo, and \+150 are needed"),
            ("regression", (promoted(),), "not in the store"),
            ("stall", (promoted(), boosted(1.5)), "has stalled already"),
            ("bad-data", (promoted(),), "no games to compare"),
            ("bad-data", (promoted(), played("r")), "no current model in the store"),
            ("bad-data", (promoted(), TrainingBlockedByQuality(reason="x")), "kept from training .* already"),
            ("wrong-rules", (promoted(),), "no games to compare"),
            ("plateau", (promoted(),), "only configuration"),
            ("dead-node", (), "no current model"),
        ],
    )
    def test_what_may_be_lacking(self, name, so_far, lack):
        with pytest.raises(NotReady, match=lack):
            choose(SCENARIOS[name], {KEY: known_after(*so_far)}, None, MemoryStore())

    def test_regression_needs_a_network(self, learned):
        known, store = learned
        good = get_checkpoint(store, known.model)
        table = put_checkpoint(store, good.manifest.replace(content="q_table"), good.parameters, None)
        with pytest.raises(NotReady, match="has a q_table for a model"):
            choose(SCENARIOS["regression"], {KEY: known_after(promoted(table))}, None, store)

    @pytest.mark.parametrize("scenario", SCENARIOS.values())
    def test_one_that_has_learned_lacks_nothing(self, learned, scenario: Scenario):
        assert scenario.lacks(*learned) is None


class TestRegression:
    def test_the_model_likes_best_what_the_good_one_likes_least(self, learned):
        known, store = learned
        good, bad = known.model, store_reversed(store, known.model)
        shape = get_checkpoint(store, good).manifest.shape
        obs, mask = (
            np.random.default_rng(1).random((50, shape.features), np.float32),
            np.ones((50, shape.actions), bool),
        )
        first, second = (
            Policy(CONFIG.network, shape, bytes_to_parameters(get_checkpoint(store, model).parameters))
            for model in (good, bad)
        )
        liked, disliked = first.forward(obs, mask)[0], second.forward(obs, mask)[0]
        assert (liked.argmax(axis=1) == disliked.argmin(axis=1)).all()
        assert (first.forward(obs, mask)[1] == second.forward(obs, mask)[1]).all(), "the critic is left alone"

    def test_bad_model_is_promoted_as_good_and_can_be_trained_on(self, learned):
        known, store = learned
        trouble = SCENARIOS["regression"].plan(known, store).trouble
        assert (trouble.previous, trouble.step, trouble.elo) == (known.model, 1, 400.0)
        assert store.has(trouble.model)
        assert trouble.evidence.statistic == "an operator's word"
        known, store = learned
        manifest = get_checkpoint(store, store_reversed(store, known.model), optimizer=True).manifest
        assert (manifest.step, manifest.parent, manifest.optimizer) == (1, known.model, None)

    def test_the_story(self, learned, record):
        known, store = learned
        plan = SCENARIOS["regression"].plan(known, store)
        story, bad = Story(record, plan), plan.trouble.model
        alarm = RegressionDetected(
            model=bad, last_good=known.model, elo_drop=300, severity="critical", games=60, opponent="random"
        )
        story.tell(alarm.replace(model=NEW))
        alarmed = story.tell(alarm, story.trouble, stage="detected")
        back = story.tell(rolled_back(bad, OLD, 4), alarmed, stage="decided")
        story.tell(distributed(bad, 1))
        ready = story.tell(distributed(OLD, 4), back, stage="recovered")
        story.tell(asked("w", bad), ready)
        story.tell(asked("w", OLD), ready, stage="recovered")
        assert story.watch.awaited is None
        assert list(story.watch.traces()) == [story.trouble.id]
        assert plan.remedy == RollbackRequested(model=bad, reason="the regression scenario is over")

    def test_external_models_regress_to_the_weakest_champion(self):
        config = CONFIG.replace(backend="external")
        settings = run_settings().replace(configs=(config,))
        weak, good = promoted(model=OLD, elo=10.0), promoted(model=NEW, elo=210.0)
        plan = SCENARIOS["regression"].plan(known_after(weak, good, settings=settings), MemoryStore())
        assert (plan.trouble.model, plan.trouble.previous, plan.trouble.elo) == (OLD, NEW, 210.0)
        near = known_after(weak, promoted(model=NEW, elo=209.0), settings=settings)
        with pytest.raises(NotReady, match="no champion 200 Elo weaker than its model: 199 at most"):
            choose(SCENARIOS["regression"], {KEY: near}, KEY, MemoryStore())


class TestBadData:
    def test_every_game_contradicts_the_rules_and_nothing_else_does(self, learned):
        known, store = learned
        told = SCENARIOS["bad-data"].plan(known, store).trouble
        shard = get_shard(store, told.shard.key)
        assert (told.shard.rows, told.shard.games, told.shard.model) == (shard.rows, shard.games, known.model)
        checker = checker_for(CONFIG)
        wrong = [checker.failures(game_record(shard, game)) for game in range(shard.games)]
        assert all(len(found) == 1 and found[0].startswith("outcome [1.0, 1.0] recorded") for found in wrong)

    def test_made_again_it_is_of_other_games(self, learned, record):
        known, store = learned
        first = SCENARIOS["bad-data"].plan(known, store).trouble
        known.take(record(first, KEY))
        second = SCENARIOS["bad-data"].plan(known, store).trouble
        assert first.shard.seed != second.shard.seed
        assert first.request_id != second.request_id
        assert set(store.keys()) == {known.model, first.shard.key, second.shard.key}, "the honest shards are gone"

    def test_the_story(self, learned, record):
        known, store = learned
        story = Story(record, SCENARIOS["bad-data"].plan(known, store))
        key, about = story.trouble.data.shard.key, {"request_id": "r", "worker": "selfplay_worker@laptop"}
        check = ParityChecked(**about, shard=key, against=None, checked=16, failures=16)
        story.tell(check.replace(shard="e" * 64))
        checked = story.tell(check, story.trouble, stage="detected")
        story.tell(QualityDegraded(**about, shard=key, reason="x"), story.trouble, stage="detected")
        quarantined = NodeQuarantined(worker=story.trouble.data.shard.worker, lasts_seconds=1, reason="x")
        story.tell(quarantined.replace(worker="another"))
        decided = story.tell(quarantined, checked, stage="decided")
        story.tell(training_of(SHARD.replace(key=key), step=5))  # false rows are no recovery
        story.tell(training_of(SHARD, step=5), decided, stage="recovered")


class TestWrongRules:
    def test_several_workers_are_left_to_another_scenario(self, learned):
        known, store = learned
        for worker in (WORKER, "selfplay_worker@second"):
            known = replace(known, workers={*known.workers, worker})
            lack = SCENARIOS["wrong-rules"].lacks(known, store)
            assert (lack is None) == (worker == WORKER)
        assert "bad-data" in lack

    def test_the_story(self, learned, record):
        known, store = learned
        story = Story(record, SCENARIOS["wrong-rules"].plan(known, store))
        shard = story.trouble.data.shard
        assert shard.worker == SHARD.worker, "the run's own"
        about = {"request_id": "r", "worker": shard.worker, "shard": shard.key}
        checked = story.tell(
            ParityChecked(**about, against=None, checked=16, failures=16), story.trouble, stage="detected"
        )
        story.tell(QualityDegraded(**about, reason="x"), story.trouble, stage="detected")
        story.tell(TrainingUnblocked(reason="x"))
        story.tell(TrainingBlockedByQuality(reason="x"), checked, stage="decided")
        story.tell(TrainingUnblocked(reason="x"), stage="recovered")
        story.tell(training_of(SHARD, step=5), stage="recovered")
        assert story.plan.remedy is None, "the loop recovers by itself"


class TestStall:
    def test_stall_goes_as_low_as_allowed_or_advised(self):
        plan = SCENARIOS["stall"].plan(known_after(promoted(), tuned("learning_rate", 3e-4)), MemoryStore())
        assert (plan.trouble.parameter, plan.trouble.value, plan.trouble.previous) == ("learning_rate", 1e-6, 3e-4)
        assert (plan.remedy.value, plan.remedy.previous) == (3e-4, 1e-6)
        assert plan.least_seconds == 8 * 3600, "the window and the life of a boost"
        settings = run_settings(**tomllib.loads(QUICK)["feedback"])
        plan = SCENARIOS["stall"].plan(known_after(promoted(), settings=settings), MemoryStore())
        assert plan.least_seconds < 60
        assert plan.shorten == QUICK
        assert next(step for step in plan.expected if step.stage == "detected").doubt.endswith(QUICK)

    def test_the_story(self, known, record):
        plan = SCENARIOS["stall"].plan(known, MemoryStore())
        story = Story(record, plan)
        story.tell(trained_at(1e-6), story.trouble, stage="struck")
        story.tell(PLATEAU, key=OTHER_KEY)
        story.tell(PLATEAU, stage="detected")
        raised = story.tell(boosted(1.5), stage="decided")
        assert plan.remedy_after == len(story.watch.seen) - 1
        remedy = story.tell(plan.remedy, raised)
        assert isinstance(remedy.data, HyperparameterUpdated)
        story.tell(trained_at(CONFIG.learning_rate), remedy, stage="recovered")
        story.tell(boosted(1.2))
        story.tell(boosted(1.0), stage="recovered")


class TestPlateau:
    def test_the_story(self, known, record):
        plan = SCENARIOS["plateau"].plan(known, MemoryStore())
        story = Story(record, plan)
        story.tell(trained_at(1e-6), story.trouble, stage="struck")
        story.tell(PLATEAU, stage="detected")
        story.tell(boosted(1.5), stage="decided")
        story.tell(rebalanced())
        taken = story.tell(rebalanced(KEY), stage="decided")
        assert plan.remedy_after == len(story.watch.seen) - 1
        story.tell(trained_at(CONFIG.learning_rate), story.tell(plan.remedy, taken), stage="recovered")
        story.tell(rebalanced(KEY))
        story.tell(rebalanced(), stage="recovered")


class TestDeadNode:
    def test_the_story(self, known, record):
        plan = SCENARIOS["dead-node"].plan(known, MemoryStore())
        story = Story(record, plan)
        assert isinstance(plan.trouble, DaemonReady)
        ghost, laptop = "selfplay_worker@ghost", "selfplay_worker@laptop"
        lost = NodeLost(daemon="selfplay_worker", node="ghost", silent_seconds=31.0)
        story.tell(asked(laptop))
        struck = story.tell(asked(ghost), key=OTHER_KEY, stage="struck")
        story.tell(lost.replace(node="laptop"))
        story.tell(lost, stage="detected")
        story.tell(asked(laptop))  # another configuration's
        again = story.tell(asked(laptop), key=OTHER_KEY, stage="decided")
        story.tell(played("another"), key=OTHER_KEY)
        story.tell(played(again.id), key=OTHER_KEY, stage="recovered")
        shown = story.watch.traces()
        assert story.trouble.id not in shown, "nothing comes of it"
        assert shown[struck.id] == "struck: SELFPLAY_REQUESTED"


def test_steps_count_in_order_with_time_and_cause(known, record):
    story = Story(record, SCENARIOS["stall"].plan(known, MemoryStore()))
    story.tell(boosted(1.5))
    story.tell(trained_at(1e-6), stage="struck")
    story = Story(record, SCENARIOS["stall"].plan(known, MemoryStore()))
    between = story.tell(boosted(1.0), story.trouble)
    seen = story.watch.feed(story.add(trained_at(1e-6), between))
    assert (seen.seconds, seen.follows) == (2.0, True)


def test_what_follows_from_something_else_is_shown_by_that(known, record):
    story = Story(record, SCENARIOS["stall"].plan(known, MemoryStore()))
    story.tell(trained_at(1e-6), story.trouble, stage="struck")
    tick = story.tell(ClockTick(period_seconds=1.0))
    story.tell(PLATEAU, tick, stage="detected")
    story.tell(boosted(1.5), tick, stage="decided")
    assert [seen.follows for seen in story.watch.seen] == [True, False, False]
    assert story.watch.traces() == {
        story.trouble.id: "injected: HYPERPARAMETER_UPDATED, struck: TRAINING_REQUESTED",
        tick.id: "detected: PLATEAU_DETECTED, decided: EXPLORATION_BOOST",
    }


@pytest.mark.parametrize("scenario", SCENARIOS.values())
def test_what_is_published_can_be_published(learned, scenario: Scenario):
    plan = scenario.plan(*learned)
    for data in (plan.trouble, plan.remedy, plan.pulse):
        if data is not None:
            subject = plan.key if data.scope == "config" else None
            originate(data, event_id=derive_id("x"), time=EPOCH, subject=subject)


@pytest.mark.parametrize("scenario", SCENARIOS.values())
def test_steps_are_events_of_daemons(learned, scenario: Scenario):
    """A step of a type that nothing emits any more would never come."""
    emitted = frozenset({NodeLost}).union(*(spec.emits for spec in DAEMONS.values()))  # the broker's own fact
    assert {step.kind for step in scenario.plan(*learned).expected} <= emitted
