"""The simulated loop with the real controllers: reproducible and complete."""

from collections import Counter
from hashlib import blake2b

import pytest
from simulated_settings import simulated_settings

from flyball.app.config import GAMES, RunSettings
from flyball.app.config.feedback import TriggerSettings
from flyball.app.core import ConfigKey
from flyball.app.core.clock import SECOND_US
from flyball.app.events import (
    DaemonReady,
    EvaluationCompleted,
    EvaluationFailed,
    EvaluationRequested,
    Event,
    ModelDistributed,
    NodeDegraded,
    NodeRecovered,
    Payload,
    QualityDegraded,
    QualityScoreUpdated,
    RunConfigured,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
    TrainingCompleted,
    TrainingFailed,
    TrainingRequested,
    encode,
)
from flyball.app.simulation import ALL, ARMS, NONE, PlantSettings, Scoreboard, Simulation, load_plant
from flyball.app.simulation.settings import CurveSettings, MachineSettings
from flyball.app.simulation.world import START_US

KEYS = ("tic_tac_toe_2p", "connect_four_2p", "oh_hell_3p")
HOURS = 3600.0
PLANT = load_plant()


def settings(nodes: int = 6) -> RunSettings:
    return simulated_settings(nodes, [GAMES[ConfigKey(key)] for key in KEYS])


def simulated(
    arm: str = ALL,
    seed: int = 1,
    hours: float = 12,
    plant: PlantSettings = PLANT,
    nodes: int = 6,
    run: RunSettings | None = None,
) -> tuple[Simulation, list[Event[Payload]]]:
    simulation = Simulation(run or settings(nodes), plant, ARMS[arm], seed, hours * HOURS)
    events = list[Event[Payload]]()
    simulation.listeners.append(events.append)
    simulation.run()
    return simulation, events


def digest(events: list[Event[Payload]]) -> str:
    total = blake2b()
    for event in events:
        total.update(f"{event.sequence} {event.recorded_us} {event.source}".encode() + encode(event.envelope))
    return total.hexdigest()


def test_same_seed_gives_the_same_events_stamped_as_by_a_broker() -> None:
    events, again, other = (simulated(seed=seed)[1] for seed in (1, 1, 2))
    assert digest(events) == digest(again) != digest(other)
    assert isinstance(events[0].data, RunConfigured)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    times = [event.recorded_us for event in events]
    assert times == sorted(times)
    assert times[0] == START_US
    assert times[-1] <= START_US + 12 * HOURS * SECOND_US
    assert len({event.id for event in events}) == len(events)


@pytest.mark.parametrize("arm", [ALL, NONE])
def test_every_request_is_answered_once_or_under_way(arm) -> None:
    simulation, events = simulated(arm, hours=24)
    asked = {event.id for event in events if isinstance(event.data, SelfplayRequested)}
    answered = [e.data.request_id for e in events if isinstance(e.data, SelfplayComplete | SelfplayFailed)]
    assert len(answered) == len(set(answered))
    assert set(answered) <= asked
    assert len(asked) == len(answered) + sum(node.pending for node in simulation.cluster.nodes.values())
    trainings = [event for event in events if isinstance(event.data, TrainingRequested)]
    trained = [e.data.request_id for e in events if isinstance(e.data, TrainingCompleted | TrainingFailed)]
    assert len(trained) == len(set(trained))
    assert set(trained) <= {event.id for event in trainings}
    latest = {event.subject: event.id for event in trainings}  # the trainer drops a request that a newer one replaces
    waiting = [request for request in latest.values() if request not in trained]
    assert len(waiting) == simulation.cluster.stations["training"].pending


def quick(plant: PlantSettings) -> PlantSettings:
    """Return the plant with trainings that take no time. So nodes are never idle, and only games wait."""

    def curve(one: CurveSettings) -> CurveSettings:
        return one.replace(time=one.time.replace(request=2.0, inspection=1e-3, training=1e-3, trained_row=1e-9))

    return plant.replace(configs={key: curve(one) for key, one in plant.configs.items()})


def test_nodes_that_fail_at_once_draw_few_requests() -> None:
    """Let a node's requests fail within a second half of the time. Other requests take ten minutes."""
    spells = PLANT.troubles.failing_nodes.replace(per_day=2.0)
    troubles = PLANT.troubles.replace(failing_nodes=spells)
    _, events = simulated(hours=16, plant=quick(PLANT).replace(troubles=troubles))
    failed = sum(isinstance(event.data, SelfplayFailed) for event in events)
    played = sum(isinstance(event.data, SelfplayComplete) for event in events)
    assert any(isinstance(event.data, NodeDegraded) for event in events)
    assert any(isinstance(event.data, NodeRecovered) for event in events)
    assert failed < played


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_turns_the_loop(arm) -> None:
    simulation, events = simulated(arm, hours=10)
    learned = Counter(event.subject for event in events if isinstance(event.data, ModelDistributed))
    assert all(learned[key] >= 2 for key in KEYS), learned
    current = {event.subject: event.data.model for event in events if isinstance(event.data, ModelDistributed)}
    assert sum(simulation.world.models[model].skill for model in current.values()) > 0


@pytest.mark.parametrize("arm", ["without SelfplayScheduler", "without TrainingTrigger"])
@pytest.mark.parametrize(
    "quality",
    [{"healthy": 0.6}, {"healthy": 0.95}, {"healthy": 0.75, "noise_sd": 0.3}],
    ids=["more rows for a training", "fewer rows for a training", "some rows too poor for any"],
)
def test_baselines_agree_on_the_rows_that_make_a_training(arm, quality) -> None:
    """Train again and again under each baseline."""
    plant = PLANT.replace(quality=PLANT.quality.replace(**quality))
    known = settings()
    feedback = known.feedback.replace(trigger=TriggerSettings(hot_path=0.5, accelerated=0.5))
    run = known.replace(feedback=feedback)
    _, events = simulated(arm, hours=24, plant=plant, run=run)
    half = events[0].recorded_us + 12 * HOURS * SECOND_US
    late = Counter(e.subject for e in events if isinstance(e.data, TrainingRequested) and e.recorded_us > half)
    assert all(late[key] >= 2 for key in KEYS), late


def test_requests_of_a_dead_node_are_played_after_its_return() -> None:
    dying = PLANT.troubles.dead_nodes.replace(per_day=6.0, hours=1.0)
    troubles = PLANT.troubles.replace(dead_nodes=dying)
    simulation, events = simulated(NONE, hours=24, plant=PLANT.replace(troubles=troubles), nodes=3)
    starts = Counter(event.source for event in events if isinstance(event.data, DaemonReady))
    assert max(starts.values()) > 1
    asked = sum(isinstance(event.data, SelfplayRequested) for event in events)
    answered = sum(isinstance(event.data, SelfplayComplete | SelfplayFailed) for event in events)
    assert asked == answered + sum(node.pending for node in simulation.cluster.nodes.values())


def test_jobs_of_a_lost_node_are_done_by_others() -> None:
    """Run all jobs but games on three nodes that may die. On average a node dies every two hours, for one hour."""
    dying = PLANT.troubles.dead_nodes.replace(per_day=12.0, hours=1.0)
    none = MachineSettings(selfplay=0, inspection=0, training=0, evaluation=0, cores=1)
    cluster = PLANT.cluster.replace(
        head=none, node=MachineSettings(selfplay=1, inspection=1, training=1, evaluation=1, cores=4)
    )
    plant = PLANT.replace(troubles=PLANT.troubles.replace(dead_nodes=dying), cluster=cluster)
    simulation, events = simulated(hours=12, plant=plant, nodes=3)
    for kind, asked, answers in (
        ("training", TrainingRequested, TrainingCompleted | TrainingFailed),
        ("evaluation", EvaluationRequested, EvaluationCompleted | EvaluationFailed),
        ("inspection", SelfplayComplete, QualityScoreUpdated | QualityDegraded),
    ):
        station = simulation.cluster.stations[kind]
        answered = [event.data.request_id for event in events if isinstance(event.data, answers)]
        assert len(answered) == len(set(answered)) > 0
        assert len(station.ended) > len(answered) or kind == "inspection"  # some of the long jobs were restarted
        requests = sum(isinstance(event.data, asked) for event in events)
        assert requests - len(answered) <= station.pending + len(KEYS)  # a gate may be dropped, a training replaced


def test_planted_regression_shows_in_truth_and_scoreboard() -> None:
    planting = PLANT.regressions.replace(planted_per_day=4.0, planted_elo=30.0, sudden=0.0)
    plant = PLANT.replace(regressions=planting)
    simulation = Simulation(settings(), plant, ARMS[NONE], seed=3, seconds=24 * HOURS)
    scoreboard = Scoreboard(simulation.world, KEYS)
    simulation.listeners.append(scoreboard.observe)
    simulation.run()
    cases = [case for account in scoreboard.accounts.values() for case in account.cases]
    assert cases
    assert simulation.world.planted >= len(cases)
    assert any(model.planted for model in simulation.world.models.values())
    exploits = [model.exploit for model in simulation.world.models.values() if model.exploit]
    assert {exploit.elo for exploit in exploits} == {30.0 + planting.planted_exploit_elo}


def test_no_event_holds_a_true_strength() -> None:
    """Search payloads and ``FeedbackState`` for the world's true strengths."""
    simulation, events = simulated(hours=6)
    truths = {round(model.skill, 6) for model in simulation.world.models.values() if model.skill}
    published = {round(value, 6) for event in events for value in vars(event.data).values() if isinstance(value, float)}
    assert truths
    assert not truths & published
