"""All daemons in one process close the loop, and replay agrees. They share a bus in memory."""

import asyncio
from pathlib import Path

import pytest
from replayed import replay

from flyball.app.bus.memory import MemoryBus
from flyball.app.config import GAMES, EvaluationSettings, RunSettings, SelfplaySettings
from flyball.app.controllers.fold import HOST
from flyball.app.engine import InlineEngine
from flyball.app.events import (
    DaemonReady,
    DaemonStopped,
    ModelPromoted,
    PromotionRejected,
    QualityScoreUpdated,
    RunConfigured,
    SelfplayComplete,
    TrainingCompleted,
    originate,
)
from flyball.app.job_specs import JobContext
from flyball.app.journal import history
from flyball.app.journal.memory import MemoryJournal, MemoryStateStore
from flyball.app.replay.replaying import Replay
from flyball.daemons.clock import SystemClock
from flyball.daemons.host import Host, Ports, Rhythm
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.registry import DAEMONS
from flyball.daemons.saved_state import KNOWN_KEY

KEY = "tic_tac_toe_2p"
GAME = GAMES[KEY].replace(
    rows_per_training=128,
    selfplay=SelfplaySettings(games_per_request=32),
    evaluation=EvaluationSettings(random_games=10, model_games=10),
)
SETTINGS = RunSettings(configs=(GAME,))
SPECS = {name: spec for name, spec in DAEMONS.items() if spec.reducers}


def worker_identity(name: str, store: Path) -> WorkerIdentity:
    return WorkerIdentity(name=f"{name}@laptop", node="laptop", context=JobContext(store=str(store)))


async def turn(journal: MemoryJournal, states: dict[str, MemoryStateStore], store: Path, until: int) -> None:
    """Run all daemons until there are ``until`` verdicts on trained models."""
    clock = SystemClock()
    bus, stop = MemoryBus(journal, clock, producer="broker@laptop"), asyncio.Event()
    configured = RunConfigured(run_id="run", settings=SETTINGS.model_dump(mode="json"))
    await bus.publish(originate(configured, event_id="configured", time=clock.now()))
    engines = {name: InlineEngine() for name, spec in SPECS.items() if spec.worker}
    async with asyncio.TaskGroup() as group:
        for name, spec in SPECS.items():
            ports = Ports(bus, states[name], clock, engines.get(name))
            host = Host(spec, worker_identity(name, store), f"boot-{journal.head}", ports, Rhythm(0.2, 5.0))
            group.create_task(host.run(stop))
        async with bus.subscribe({ModelPromoted, PromotionRejected}, after=0) as verdicts:
            trained = 0
            async for batch in verdicts:
                trained += sum(event.data.step > 0 for event in batch.events)
                if trained >= until:
                    break
        stop.set()
    for engine in engines.values():
        await engine.close()
    await bus.close()


@pytest.fixture
def states():
    return {name: MemoryStateStore() for name in SPECS}


@pytest.mark.parametrize("lives", [(2,), (1, 3)], ids=["at once", "stopped and started again"])
async def test_all_daemons_close_the_loop_and_replay_agrees(tmp_path, states, lives):
    journal, before = MemoryJournal(), []
    for until in lives:
        await turn(journal, states, tmp_path, until=until)
        events = list(history(journal))
        assert events[: len(before)] == before
        before = events
    assert len({event.id for event in events}) == len(events)
    for fact in (DaemonReady, DaemonStopped):
        assert {event.data.daemon for event in events if isinstance(event.data, fact)} == set(SPECS)
    steps = [event.data.step for event in events if isinstance(event.data, TrainingCompleted)]
    assert steps == sorted(steps)
    assert steps.count(0) == 1
    for fact in (SelfplayComplete, QualityScoreUpdated, TrainingCompleted, ModelPromoted):
        assert any(isinstance(event.data, fact) for event in events), f"no {fact.event_name}"

    report = replay(events)
    assert report.differing == 0
    assert {"MODEL_PROMOTED", "SELFPLAY_REQUESTED", "TRAINING_REQUESTED", "EVALUATION_REQUESTED"} <= set(report.matched)
    for name, spec in SPECS.items():
        if spec.controllers:
            cursor, saved = states[name].load()
            one = Replay({name: spec})
            one.feed(events[:cursor])
            rows = {(reducer, key): row for reducer, rows in one.tables().items() for key, row in rows.items()}
            kept = {key: row for key, row in saved.items() if key[0] != HOST and key != KNOWN_KEY}
            assert {key: row.to_json() for key, row in rows.items()} == kept
