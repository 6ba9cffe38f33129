"""Own controllers in simulation, replay, what-if and a daemon that restarts."""

from math import cos, pi
from pathlib import Path
from typing import Any

import pytest
from host_stage import KEY, Stage, logged
from msgspec.structs import replace as with_fields
from recorded_run import evaluated, trained
from simulated_settings import simulated_settings

from flyball.app.config import GAMES, BadSettings, RunSettings
from flyball.app.core import ConfigKey
from flyball.app.events import (
    AdaptiveParamsChanged,
    DaemonReady,
    DaemonStarted,
    Event,
    HyperparameterUpdated,
    ModelPromoted,
    Payload,
    RunConfigured,
    TrainingCompleted,
    TrainingRequested,
)
from flyball.app.journal.memory import MemoryStateStore
from flyball.app.replay.replaying import Replay, Report, replay_journal
from flyball.app.replay.what_if import WhatIf
from flyball.app.simulation import ALL, NONE, Simulation, arms_of, load_plant
from flyball.daemons.registry import daemons_of
from flyball.daemons.spec import DaemonSpec

EXAMPLES = Path(__file__).parents[1] / "examples"
COSINE = {"use": "my_controller:Cosine", "takes_over": ("learning_rate",), "options": {"trainings": 10, "lowest": 0.1}}
HOURS = 12
Events = list[Event[Payload]]


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


def settings() -> RunSettings:
    run = simulated_settings(4, [GAMES[ConfigKey(key)] for key in ("tic_tac_toe_2p", "hex7_2p")])
    return run.replace(controllers={"cosine": COSINE})


def simulated(arm: str = ALL, run: RunSettings | None = None) -> Events:
    run, events = run or settings(), list[Event[Payload]]()
    simulation = Simulation(run, load_plant(), arms_of(run)[arm], 1, HOURS * 3600.0)
    simulation.listeners.append(events.append)
    simulation.run()
    assert simulation.failures == []
    return events


@pytest.fixture(scope="module")
def run() -> Events:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return simulated()


def rates(events: Events) -> list[Any]:
    found = [one for one in events if isinstance(one.data, HyperparameterUpdated)]
    return [one for one in found if one.data.parameter == "learning_rate"]


def test_simulated_trainings_follow_the_cosine(run: Events) -> None:
    decided = [one.data.value for one in rates(run) if one.subject == KEY]
    wanted = [0.1 + 0.9 * (1 + cos(pi * min(1, done / 10))) / 2 for done in range(1, len(decided) + 1)]
    assert len(decided) > 3
    assert decided == pytest.approx([GAMES[KEY].learning_rate * share for share in wanted])
    asked = [e.data.learning_rate for e in run if isinstance(e.data, TrainingRequested) and e.subject == KEY]
    assert set(asked[2:]) <= set(decided) | {GAMES[KEY].learning_rate}
    assert not any(isinstance(event.data, AdaptiveParamsChanged) for event in run)


def test_arm_without_an_own_controller_gives_its_knob_back() -> None:
    names = arms_of(settings())
    assert list(names)[-1] == "without cosine"
    assert "cosine" not in {one.name for one in names[NONE]}
    events = simulated("without cosine")
    assert rates(events) == []
    (configured,) = [one.data for one in events if isinstance(one.data, RunConfigured)]
    assert configured.settings["controllers"] == {}


def replayed(events: Events) -> Report:
    replay = Replay(daemons_of(settings()))
    replay.feed(events)
    return replay.report(events[-1].sequence)


def test_replay_concludes_the_same_and_finds_a_changed_decision(run: Events) -> None:
    report = replayed(run)
    assert report.differing == 0
    assert report.matched["HYPERPARAMETER_UPDATED"] >= len(rates(run)) - 1  # the last may still be on its way
    altered = rates(run)[1]
    data = altered.data.replace(value=0.5)
    other = with_fields(altered, envelope=with_fields(altered.envelope, data=data), source="feedback@cluster")
    (difference, *_) = replayed([other if one is altered else one for one in run]).differences
    assert (difference.kind, difference.by, difference.recorded_at) == ("changed", "cosine", altered.sequence)


@pytest.mark.parametrize(
    ("values", "kind"),
    [({"controllers.cosine.options.lowest": 0.5}, "changed"), ({"controllers": {}}, "missing")],
    ids=["with other options", "without it"],
)
def test_what_if_shows_what_the_controller_would_have_decided(run: Events, values: dict, kind: str) -> None:
    what_if = WhatIf(values, past=[settings()])
    found = [one for event in run for one in what_if.feed(event) if one.by == "cosine"]
    assert {one.kind for one in found} == {kind}
    assert len(found) == len([e for e in run if isinstance(e.data, TrainingCompleted) and e.data.step > 0])


def test_what_if_skips_settings_before_the_controller(run: Events) -> None:
    before = settings().replace(controllers={})
    what_if = WhatIf({"controllers.cosine.options.lowest": 0.5}, past=[settings(), before])
    (configured, *rest) = run
    assert isinstance(configured.data, RunConfigured)
    data = configured.data.replace(settings=before.model_dump(mode="json"))
    earlier = with_fields(configured, envelope=with_fields(configured.envelope, data=data))
    found = [one for event in (earlier, configured, *rest) for one in what_if.feed(event) if one.by == "cosine"]
    assert {one.kind for one in found} == {"changed"}


def test_what_if_refuses_options_of_no_controller() -> None:
    with pytest.raises(BadSettings, match=r"controllers.cosin.use: Field required"):
        WhatIf({"controllers.cosin.options.lowest": 0.5}, past=[settings()])


def promoting() -> RunSettings:
    table = {"use": "own_rules:PromotesAll", "takes_over": ["promotion"]}
    return settings().replace(controllers={"mine": table})


def test_own_promotions_turn_the_loop() -> None:
    events = simulated(run=promoting())
    promotions = [one for one in events if isinstance(one.data, ModelPromoted)]
    assert {one.data.evidence.statistic for one in promotions} == {"rated"}
    assert len(promotions) > 8
    replay = Replay(daemons_of(promoting()))
    replay.feed(events)
    assert replay.report(events[-1].sequence).differing == 0


class OwnStage(Stage):
    """A stage whose run may have a controller of the user's own."""

    async def configure_own(self, table: dict[str, Any] | None) -> DaemonSpec:
        """Record the run's settings, and return the daemon that hosts the controller."""
        settings = RunSettings(configs=(GAMES[KEY],)).replace(controllers={"mine": table} if table else {})
        data = RunConfigured(run_id="r", settings=settings.model_dump(mode="json"))
        await self.publish(data, f"configured with {table}", None)
        return daemons_of(settings)["feedback"]

    async def train(self, number: int) -> None:
        await self.publish(trained("a" * 64, number), f"trained {number}")


async def test_host_restarted_continues_from_saved_rows() -> None:
    stage, states = OwnStage(), MemoryStateStore()
    feedback = await stage.configure_own(COSINE)
    for number in (1, 2):
        await stage.train(number)
        decided = await stage.until(HyperparameterUpdated, stage.host(feedback, states), number)
        assert decided[-1].reason.endswith(f"training {number}")
    stage.check_nothing_twice()


async def test_controller_added_to_a_run_decides_from_then_on() -> None:
    stage, states = OwnStage(), MemoryStateStore()
    feedback = await stage.configure_own(None)
    await stage.train(1)
    await stage.until(DaemonReady, stage.host(feedback, states))
    feedback = await stage.configure_own(COSINE)
    await stage.train(2)
    decided = await stage.until(HyperparameterUpdated, stage.host(feedback, states))
    assert [one.reason.partition(" after ")[2] for one in decided] == ["training 1"]
    versions = [one.version for one in stage.of(DaemonStarted)]
    assert versions[0] != versions[1]
    report = replay_journal(stage.journal)
    assert (report.differing, report.matched["HYPERPARAMETER_UPDATED"]) == (0, 1)


async def test_host_restarted_without_a_controller_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Restart the daemon after a change of flyball.toml. The supervisor may do so before the run is restarted."""
    stage, states = OwnStage(), MemoryStateStore()
    feedback = await stage.configure_own(COSINE)
    await stage.until(DaemonReady, stage.host(feedback, states))
    assert "does not host" not in logged(capsys)
    await stage.until(DaemonReady, stage.host("feedback", states), 2)
    assert "controllers that this daemon does not host controllers=['mine']" in logged(capsys)


async def test_host_with_a_failing_controller_goes_on() -> None:
    stage = OwnStage()
    feedback = await stage.configure_own({"use": "own_rules:Raising", "takes_over": ("learning_rate",)})
    await stage.publish(evaluated("a" * 64, 1, 0.0, 60), "evaluated")
    await stage.until(DaemonReady, stage.host(feedback, MemoryStateStore()))
    (dead,) = stage.journal.dead_letters()
    assert dead.reporter == "feedback@laptop/mine"
    assert dead.error.startswith("ZeroDivisionError: ")
    assert len(stage.of(DaemonStarted)) == 1
