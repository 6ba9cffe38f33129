"""Troubles that an operator makes in a running loop. The loop detects them, decides, and recovers."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from running_loop import SETTINGS, RunningLoop, flyball, running_loop

from flyball.app.config import Deployment
from flyball.app.core import ModelHash
from flyball.app.events import (
    EvaluationCompleted,
    Event,
    ExplorationBoost,
    ModelPromoted,
    NodeLost,
    NodeQuarantined,
    SelfplayComplete,
    SelfplayRequested,
    TrainingBlockedByQuality,
    TrainingCompleted,
    TrainingRequested,
)
from flyball.app.scenarios.demonstration import settings_text
from flyball.app.scenarios.stall import QUICK

KEY = "tic_tac_toe_2p"
LIVELY = (
    SETTINGS.replace("rows_per_training = 256", "rows_per_training = 4096")
    .replace("games_per_request = 64", "games_per_request = 512")
    .replace("random_games = 40", "random_games = 100")
    .replace("model_games = 20", "model_games = 100")
)
"""Trainings that make a difference, and ratings that notice it."""

WATCHFUL = """
[feedback.quality]
parity_clear_checks = 1
[feedback.scheduler]
idle_seconds = 2.0
"""
IMPATIENT = """
[feedback.lifecycle]
max_games = 400
"""

LEARNED_ELO = 200.0
PATIENCE = 400
"""Seconds that a busy machine is given for a scenario."""


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLoop]:
    with running_loop(tmp_path_factory.mktemp("run") / "run", LIVELY + WATCHFUL) as started:
        yield started


class Played:
    """Output of ``flyball scenario``, and ``flyball trace`` of the events it names."""

    def __init__(self, folder: Path, *words: str, wait: int) -> None:
        told = flyball(folder, "scenario", *words, "--wait", str(wait), "--json")
        *steps, end = [json.loads(line) for line in told.splitlines()]
        self.steps = [(step["stage"], step["event"]["type"].removeprefix("flyball.")) for step in steps]
        self.events = [step["event"] for step in steps]
        self.follow = [step["follows"] for step in steps]
        self.traced = {id_: flyball_trace(folder, id_) for id_ in end["traces"]}

    @property
    def trouble(self) -> Any:
        """The payload of the injected event."""
        return self.events[0]["data"]

    def shown(self) -> set[str]:
        """Return the ids of all events in the traces, of which a chain with a retest takes more than one."""
        return {event["id"] for trace in self.traced.values() for event in trace}


def flyball_trace(folder: Path, event_id: str) -> Sequence[Any]:
    events: list[Any] = json.loads(flyball(folder, "trace", event_id, "--json"))["events"]
    return events


def has_learned(loop: RunningLoop) -> bool:
    promotions = loop.events(ModelPromoted)
    return bool(promotions) and promotions[-1].data.elo >= LEARNED_ELO


def promoted_before(loop: RunningLoop, trouble: Any) -> set[ModelHash]:
    return {e.data.model for e in loop.events(ModelPromoted) if e.sequence < int(trouble["sequence"])}


def is_rated_since(loop: RunningLoop, rollback: Any) -> bool:
    evaluations = loop.events(EvaluationCompleted, after=int(rollback["sequence"]))
    return any(event.data.model == rollback["data"]["to_model"] for event in evaluations)


def descendants(loop: RunningLoop, model: ModelHash) -> set[ModelHash]:
    found = {model}
    for event in loop.events(TrainingCompleted):
        if event.data.parent in found:
            found.add(event.data.model)
    return found


def trained_on(training: Event[TrainingRequested]) -> set[str]:
    return {shard.key for shard in training.data.shards}


def decided_after(loop: RunningLoop, decisions: Sequence[Event[Any]], position: int) -> list[Event[Any]]:
    """Return the decisions whose cause is at a position or later. Others were made before it and recorded late."""
    at = {event.id: event.sequence for event in loop.events()}
    return [event for event in decisions if at[str(event.envelope.causationid)] >= position]


@pytest.mark.timeout(900)
def test_regression_is_rolled_back_and_nothing_comes_of_it(loop: RunningLoop) -> None:
    loop.wait_for("a model that has learned", lambda: has_learned(loop))
    for _ in range(2):  # the second regression comes just after the watchdog was reset
        played = Played(loop.folder, "regression", wait=PATIENCE)
        assert played.steps == [
            ("injected", "model.promoted"),
            ("detected", "evaluation.regression_detected"),
            ("decided", "model.rolled_back"),
            ("recovered", "model.distributed"),
            ("recovered", "selfplay.requested"),
        ]
        *steps, _ = played.follow  # games may be requested because a worker is done with those of before the trouble
        assert all(steps), "all follows from the trouble"
        assert {event["id"] for event in played.events[1:]} <= played.shown()
        bad, back = played.trouble["model"], played.events[2]
        assert back["data"]["to_model"] in promoted_before(loop, played.events[0])
        assert played.events[-1]["data"]["model"] == back["data"]["to_model"]
        loop.wait_for("the rating of the model gone back to", partial(is_rated_since, loop, back))
    position = int(back["sequence"])

    def after_rollback() -> list[Event[Any]]:
        return decided_after(loop, loop.events(TrainingRequested, after=position), position)

    loop.wait_for("a training after the rollback", after_rollback)
    loop.wait_for_loops(1, after=loop.head())
    tainted = {e.data.shard.key for e in loop.events(SelfplayComplete) if e.data.shard.model == bad}
    later = after_rollback()
    assert all(tainted.isdisjoint(trained_on(training)) for training in later)
    promoted = {event.data.model for event in loop.events(ModelPromoted, after=position)}
    assert promoted.isdisjoint(descendants(loop, bad))


@pytest.mark.timeout(900)
def test_node_with_bad_data_is_quarantined_and_training_goes_on(loop: RunningLoop) -> None:
    loop.wait_for_loops(1)
    played = Played(loop.folder, "bad-data", KEY, wait=PATIENCE)
    assert played.steps == [
        ("injected", "selfplay.completed"),
        ("detected", "quality.parity_checked"),
        ("detected", "quality.degraded"),
        ("decided", "node.quarantined"),
        ("recovered", "training.requested"),
    ]
    assert {event["id"] for event in played.events} <= played.shown()
    loop.wait_for_loops(1, after=loop.head())
    trainings = loop.events(TrainingRequested)
    assert not loop.events(TrainingBlockedByQuality)
    assert not [event for event in trainings if played.trouble["shard"]["key"] in trained_on(event)]


@pytest.mark.timeout(900)
def test_what_a_dead_node_was_asked_is_asked_of_another(loop: RunningLoop) -> None:
    loop.wait_for_loops(1)
    played = Played(loop.folder, "dead-node", wait=PATIENCE)
    assert played.steps == [
        ("injected", "daemon.ready"),
        ("struck", "selfplay.requested"),
        ("detected", "node.lost"),
        ("decided", "selfplay.requested"),
        ("recovered", "selfplay.completed"),
    ]
    assert {event["id"] for event in played.events[1:]} <= played.shown()
    assert played.events[0]["id"] not in played.traced, "nothing comes of it"
    lost = [event for event in loop.events(NodeLost) if event.data.node == "ghost"]
    assert len(lost) == 1
    assert lost[0].data.silent_seconds >= Deployment().node_silent_seconds
    loop.wait_for_loops(1, after=loop.head())
    asked = loop.events(SelfplayRequested, after=lost[0].sequence)
    assert {event.data.worker for event in asked} == {"selfplay_worker@laptop"}


@pytest.mark.timeout(900)
def test_training_is_blocked_while_the_only_worker_is_wrong(loop: RunningLoop) -> None:
    loop.wait_for_loops(1)
    played = Played(loop.folder, "wrong-rules", KEY, wait=PATIENCE)
    assert played.steps == [
        ("injected", "selfplay.completed"),
        ("detected", "quality.parity_checked"),
        ("detected", "quality.degraded"),
        ("decided", "quality.training_blocked"),
        ("recovered", "quality.training_unblocked"),
        ("recovered", "training.requested"),
    ]
    assert {event["id"] for event in played.events} <= played.shown()
    assert played.trouble["shard"]["worker"] == "selfplay_worker@laptop"
    block, end = (int(played.events[place]["sequence"]) for place in (3, 4))
    requested = decided_after(loop, loop.events(TrainingRequested, after=block), block)
    assert not [event for event in requested if event.sequence < end]
    assert not loop.events(NodeQuarantined, after=block)


@pytest.mark.slow  # its own loop runs until it is plateaued
@pytest.mark.timeout(900)
def test_worker_time_leaves_a_plateau_and_comes_back(tmp_path: Path) -> None:
    with running_loop(tmp_path / "run", settings_text()) as loop:
        played = Played(loop.folder, "plateau", KEY, "--ready", str(PATIENCE), wait=PATIENCE)
    assert played.steps == [
        ("injected", "training.hyperparameter_updated"),
        ("struck", "training.requested"),
        ("detected", "evaluation.plateau_detected"),
        ("decided", "selfplay.exploration_boosted"),
        ("decided", "curriculum.rebalanced"),
        ("recovered", "training.requested"),
        ("recovered", "curriculum.rebalanced"),
    ]
    taken, returned = (played.events[place]["data"] for place in (4, 6))
    assert taken["plateaued"] == [KEY]
    assert taken["weights"][KEY] < returned["weights"][KEY]


@pytest.mark.slow  # its own loop runs until it stalls
@pytest.mark.timeout(900)
def test_stall_gets_more_exploration_until_it_is_over(tmp_path: Path) -> None:
    with running_loop(tmp_path / "run", LIVELY + IMPATIENT + QUICK) as loop:
        loop.wait_for_loops(1)
        played = Played(loop.folder, "stall", KEY, wait=PATIENCE)
        boosts = [event.data.multiplier for event in loop.events(ExplorationBoost)]
    assert played.steps == [
        ("injected", "training.hyperparameter_updated"),
        ("struck", "training.requested"),
        ("detected", "evaluation.plateau_detected"),
        ("decided", "selfplay.exploration_boosted"),
        ("recovered", "training.requested"),
        ("recovered", "selfplay.exploration_boosted"),
    ]
    assert {event["id"] for event in played.events[1:]} <= played.shown()
    assert played.events[0]["id"] not in played.traced, "a rate is read by the next training, and causes no event"
    assert boosts[0] == 1.5
    assert boosts[-1] == 1.0
    low, usual = (played.events[index]["data"]["learning_rate"] for index in (1, 4))
    assert low == 1e-6
    assert usual == played.trouble["previous"]
