"""Daemons whose backend breaks its contract: a job fails, and its daemon goes on."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import broken_backends
import pytest
from host_stage import KEY, WORKER, Stage
from tabular_backend import NAME

from flyball.app.backends import Backend
from flyball.app.config import GAMES, RunSettings
from flyball.app.core import Elo
from flyball.app.engine import InlineEngine
from flyball.app.events import (
    DistributionFailed,
    EvaluationCompleted,
    EvaluationFailed,
    Evidence,
    MatchesRequested,
    ModelDistributed,
    ModelPromoted,
    QualityDegraded,
    QualityScoreUpdated,
    RunConfigured,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
    TrainingCompleted,
    TrainingFailed,
    TrainingRequested,
)
from flyball.app.job_specs import JobContext
from flyball.app.journal.memory import MemoryStateStore
from flyball.daemons.host import Host, Ports, Rhythm
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.registry import DAEMONS
from flyball.daemons.supervisor import Notifier

WORKERS = ("training", "selfplay_worker", "quality_monitor", "evaluation", "distribution")
BROKEN = sorted(name for name, value in vars(broken_backends).items() if name.isupper() and isinstance(value, Backend))
FAILURES = {TrainingFailed, SelfplayFailed, QualityDegraded, EvaluationFailed, DistributionFailed}
EXPECTED: dict[str, set[type[Any]]] = {
    "FAILING": {TrainingFailed},
    "NOWHERE": {TrainingFailed},
    "REFUSED": {QualityDegraded},
    "SHORT": {EvaluationFailed},
    "VANISHING": {SelfplayFailed, EvaluationFailed, DistributionFailed},
    "WORDED": {TrainingFailed},
}
"""The failures of each backend; a daemon cannot see how the others break their contract."""

EVIDENCE = Evidence(evaluation_id="e", statistic="s", value=0.0, threshold=0.0, games=1, elo=Elo(0.0), elo_stderr=1.0)


class Loop:
    """The five workers with a backend, given one request after the other."""

    def __init__(self, backend: str, store: Path) -> None:
        self.stage, self.requests = Stage(), 0
        settings = RunSettings(configs=(GAMES[KEY].replace(backend=backend),), selfplay_workers=(WORKER,))
        self.configured = RunConfigured(run_id="r", settings=settings.model_dump(mode="json"))
        self.store = str(store)

    def host(self, name: str, engine: InlineEngine) -> Host:
        worker = WORKER if name == "selfplay_worker" else f"{name}@laptop"
        identity = WorkerIdentity(name=worker, node="laptop", context=JobContext(store=self.store))
        stage = self.stage
        ports = Ports(stage.bus, MemoryStateStore(), stage.clock, engine, Notifier(""), None, None)
        return Host(DAEMONS[name], identity, f"boot-{name}", ports, Rhythm(0.05, 0.2))

    async def answer(self, request: Any, *answers: type[Any]) -> Any:
        """Publish a request, and return the fact that answers it."""
        self.requests += 1
        before = {kind: len(self.stage.of(kind)) for kind in answers}
        await self.stage.publish(request, f"request-{self.requests}")
        while True:
            await asyncio.sleep(0.01)
            for kind in answers:
                if (facts := self.stage.of(kind)) and len(facts) > before[kind]:
                    return facts[-1]

    async def run(self) -> list[Any]:
        """Request every kind of job, as far as the ones before succeed; return the answers."""
        await self.stage.publish(self.configured, "configured", None)
        answers = [await self.answer(training(None, ()), TrainingCompleted, TrainingFailed)]
        if isinstance(answers[-1], TrainingFailed):
            return answers
        first = answers[-1].model
        games: dict[str, Any] = {"worker": WORKER, "model": first, "lineups": (), "games": 8, "seed": 1}
        answers.append(
            await self.answer(
                SelfplayRequested(**games, temperature=1.0, probe=False),
                QualityScoreUpdated,
                QualityDegraded,
                SelfplayFailed,
            )
        )
        if played := self.stage.of(SelfplayComplete):
            request = training(first, (played[0].shard,))
            answers.append(await self.answer(request, TrainingCompleted, TrainingFailed))
        matches = MatchesRequested(purpose="retest", model=first, step=0, seed=1, games=4, opponents=("random",))
        answers.append(await self.answer(matches, EvaluationCompleted, EvaluationFailed))
        promoted = ModelPromoted(model=first, previous=None, step=0, elo=Elo(0.0), evidence=EVIDENCE)
        answers.append(await self.answer(promoted, ModelDistributed, DistributionFailed))
        return answers


def training(base: Any, shards: tuple[Any, ...]) -> TrainingRequested:
    return TrainingRequested(base_model=base, shards=shards, step=0, seed=1, learning_rate=0.1, epochs=1)


@pytest.mark.parametrize("backend", [NAME, *(f"broken_backends:{name}" for name in BROKEN if name != "TABULAR")])
async def test_broken_backend_stops_no_daemon(backend: str, tmp_path: Path) -> None:
    loop, stop = Loop(backend, tmp_path), asyncio.Event()
    async with AsyncExitStack() as stack, asyncio.timeout(200), asyncio.TaskGroup() as group:
        for name in WORKERS:
            engine = InlineEngine()
            stack.push_async_callback(engine.close)
            group.create_task(loop.host(name, engine).run(stop))
        answers = await loop.run()
        stop.set()
    failed = {type(answer) for answer in answers} & FAILURES
    assert failed == EXPECTED.get(backend.rpartition(":")[2], set())
