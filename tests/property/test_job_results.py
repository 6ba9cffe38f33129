"""Whatever a job returns or reports fails that job, and never its daemon."""

import asyncio
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from tabular_backend import NAME

from flyball.app.events import Payload, TrainingProgress, TrainingStarted, follow
from flyball.app.events.envelope import EPOCH, encode
from flyball.daemons import contract
from flyball.daemons.jobs import Job, JobRunner, Worker

RESULTS_PER_KIND = 2_000

KINDS = ("initialise", "play", "inspect", "train", "match", "distribute")

NASTY: tuple[Any, ...] = (
    None, True, 0, -1, 2**64, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "a", "\ud800", "é\n\x00",
    "f" * 64, "x" * 100_000, (), [], [None], [[]], {}, {"a": 1}, {1: 2}, b"bytes", object(), ValueError("no"), 1j,
)  # fmt: skip

Answered = tuple[Worker[Any], Job[Any], list[Any]]


@pytest.fixture(scope="module")
def answered() -> dict[str, Answered]:
    """Return each kind's worker, with a job and the results of a sound backend."""
    jobs = dict[str, Answered]()

    class Trial(contract._Trial):
        async def run_job(self, where: str, kind: Any, answer: Any) -> Any:
            job, fact = await super().run_job(where, kind, answer)
            (worker,) = (reducer for reducer in self.fold.reducers if isinstance(reducer, kind))
            jobs[where] = (worker, job, [await self.result(job, part) for part in job.parts])
            return job, fact

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contract, "_Trial", Trial)
        assert contract.check_backend(NAME) == []
    assert tuple(jobs) == KINDS
    return jobs


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Iterate over the paths to all values in a result; the result itself has the empty path."""
    yield path
    match value:
        case dict():
            for name, inner in value.items():
                yield from places(inner, (*path, name))
        case list():
            for index, inner in enumerate(value):
                yield from places(inner, (*path, index))


def spoilt(sound: Any, random: Random) -> Any:
    """Return a result with one or two values replaced or missing."""
    result = deepcopy(sound)
    for _ in range(random.choice([1, 1, 2])):
        path = random.choice(list(places(result)))
        if not path:
            return random.choice(NASTY)
        *outer, last = path
        holder = result
        for name in outer:
            holder = holder[name]
        if random.random() < 0.3:
            del holder[last]
        else:
            holder[last] = deepcopy(random.choice(NASTY[:-3])) if random.random() < 0.9 else random.choice(NASTY)
    return result


class FuzzedEngine:
    """An engine whose jobs report and return anything."""

    def __init__(self, sound: list[Any], random: Random) -> None:
        self.sound, self.random = sound, random

    async def capacity(self) -> int | None:
        return None

    async def run(self, function: str, spec: Any, on_progress: Callable[[Any], None] | None, deadline: Any) -> Any:
        if on_progress is not None and self.random.random() < 0.2:
            on_progress(spoilt(self.random.choice(self.sound), self.random))
        return spoilt(self.random.choice(self.sound), self.random)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("kind", KINDS)
async def test_no_result_of_a_job_stops_its_daemon(kind: str, answered: dict[str, Answered]) -> None:
    worker, job, sound = answered[kind]
    ended: list[tuple[Payload, ...]] = []

    async def publish(by: str, job: Job[Any], facts: Any) -> None:
        for index, fact in enumerate(facts):
            encode(follow(fact, job.cause, by=by, index=index, time=EPOCH))
        if by.endswith(".ended"):
            ended.append(facts)

    async with asyncio.timeout(200):
        for seed in range(RESULTS_PER_KIND):
            runner = JobRunner(FuzzedEngine(sound, Random(seed)), 1, publish)  # type: ignore[arg-type]
            async with asyncio.TaskGroup() as group:
                runner.reconcile(group, worker, [job])
            assert runner.running == 0
    assert {type(fact) for facts in ended for fact in facts} <= worker.emits - {TrainingStarted, TrainingProgress}
