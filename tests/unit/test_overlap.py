"""Games during a training and its verdict: SelfplayScheduler fills workers that would idle."""

import pytest
from builders import intensity, training_failed, training_of
from driving import KEY, NEED, NEW, OLD, OTHER_KEY, Driven, distributed, promoted, run_settings, scored
from scheduling import SHARD, answer, begin_training, end_training, staffed, unanswered

from flyball.app.config import GAMES
from flyball.app.events import ClockTick, TrainingBlockedByQuality

TICK = ClockTick(period_seconds=10)
BLOCKED = TrainingBlockedByQuality(reason="parity")
PAUSED = intensity("paused", quality_score=0.2)


def training(feedback: dict | None = None, keys: tuple[str, ...] = (KEY,), **nodes: int) -> tuple[Driven, list]:
    """Return a scheduler whose first configuration is in training, and the requests made since it began."""
    scheduler = staffed(run_settings(*keys, **(feedback or {})), **nodes)
    scheduler.settle(OLD)
    for _ in range(4):
        answer(scheduler, rows=NEED // 4)
    return scheduler, begin_training(scheduler, SHARD)


@pytest.mark.parametrize(("nodes", "requests"), [({"a": 1}, 0), ({"a": 4}, 0), ({"a": 1, "b": 1}, 2)])
def test_workers_play_on_during_training_if_a_machine_idles(nodes, requests):
    _, found = training(**nodes)
    assert [request.model for request in found] == [OLD] * requests


@pytest.mark.parametrize(("factor", "requests"), [(1.0, 4), (2.0, 8), (4.0, 16)])
def test_games_during_training_end_at_most_rows(factor, requests):
    """A request brings a quarter of a training's rows. The shares of rows for a training are at most 1 here."""
    trigger = {"most_rows_factor": factor, "reduced": 1.0}
    _, found = training({"trigger": trigger}, a=50, b=50)
    assert len(found) == requests


def test_games_go_on_until_a_new_model_is_distributed():
    scheduler, _ = training({"trigger": {"most_rows_factor": 100.0}}, a=1, b=1)
    assert not end_training(scheduler), "the workers are busy"
    assert [request.model for request in answer(scheduler, rows=NEED // 4)] == [OLD]
    assert not scheduler.feed(promoted(NEW))
    assert [request.model for request in answer(scheduler, rows=NEED // 4)] == [OLD]
    assert not scheduler.feed(distributed(NEW, 1)), "half of a training's rows are there, half under way"
    assert len(unanswered(scheduler)) == 2


def test_as_many_loops_as_machines_leave_none_idle():
    """Two machines, two configurations: the first is in training, the second's training begins."""
    scheduler, found = training(keys=(KEY, OTHER_KEY), a=1, b=1)
    assert len(found) == 2
    scheduler.feed(training_of(scored().shard), key=OTHER_KEY)
    assert not answer(scheduler, rows=NEED // 4)
    assert scheduler.feed(training_failed(scheduler.state(OTHER_KEY).lineage.training), key=OTHER_KEY)


def test_configuration_that_lacks_rows_comes_first():
    """Two workers hold two short requests each at most, the second of a configuration that lacks rows."""
    scheduler, _ = training(keys=(KEY, OTHER_KEY), a=1, b=1)
    scheduler.feed(distributed(), key=OTHER_KEY)
    answer(scheduler, OTHER_KEY, rows=GAMES[OTHER_KEY].rows_per_training // 16)
    assert (len(unanswered(scheduler)), len(unanswered(scheduler, OTHER_KEY))) == (2, 2)
    answer(scheduler, rows=NEED // 4)
    assert (len(unanswered(scheduler)), len(unanswered(scheduler, OTHER_KEY))) == (1, 3)


@pytest.mark.parametrize("decision", [BLOCKED, PAUSED], ids=["blocked", "paused"])
def test_blocked_training_gets_no_games_meanwhile(decision):
    scheduler = staffed(a=1, b=1)
    scheduler.settle(OLD)
    answer(scheduler, rows=NEED)
    scheduler.feed(decision)
    assert not begin_training(scheduler, SHARD)


@pytest.mark.parametrize(
    ("changes", "staleness", "plays"),
    [({}, 1, True), ({}, 0, False), ({"trainer": "a:b"}, 1, False), ({"train_command": ("x",)}, 1, False)],
    ids=["PPO", "fresh rows only", "own trainer", "own command"],
)
def test_only_rows_that_will_count_are_played(changes, staleness, plays):
    run = run_settings(trigger={"staleness": staleness})
    scheduler = staffed(run.replace(configs=(run.configs[0].replace(**changes),)), a=1, b=1)
    scheduler.settle(OLD)
    answer(scheduler, rows=NEED)
    assert bool(begin_training(scheduler, SHARD)) == plays
