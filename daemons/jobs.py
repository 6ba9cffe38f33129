"""Workers' jobs, which run off the event loop.

A bounded number of jobs runs at once. A worker is a reducer that also has jobs. Its rows hold the pending requests, and
``job`` derives a job from each. Nothing else is remembered, so a worker killed at any moment continues with the jobs
that its rows still require. A result or failure is published as a fact whose id follows from the request, so of a
repeated job the first one counts.
"""

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import structlog

from flyball.app.backends import Backend, backend_of
from flyball.app.config import JobKind, RunSettings
from flyball.app.controllers import States
from flyball.app.core import EventId, FlyballError, JsonObject
from flyball.app.engine import Engine, JobFailed, scatter
from flyball.app.events import Cause, HandlerReducer, Payload, Row, traceparent_of
from flyball.app.job_specs import JobContext, JobResult, read_results

Q = TypeVar("Q")


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """A worker's name on the bus, its node, and the context of its jobs there."""

    name: str
    node: str
    context: JobContext


def only(parts: Sequence[Any | FlyballError]) -> Any:
    """Return the result of a job's only part, or raise its error."""
    (part,) = parts
    if isinstance(part, FlyballError):
        raise part
    return part


@dataclass(frozen=True, slots=True)
class Job(Generic[Q]):
    """Calls of one function in compute processes, for the event that requested the job.

    Attributes:
        cause: the event that requested the job.
        request: the request, usually the event's payload.
        function: the function to call, as 'package.module:name'.
        parts: the argument of each call; the calls run at once, as far as the engine has workers.
        deadline_seconds: longest time of one attempt at one part; then its process is killed and replaced.
        gather: combines the parts' results, or raises ``FlyballError``. A failed part is given as its last error.
        attempts: most attempts at a part that raises.
        memo: data for the worker's methods, which the called function does not receive.
    """

    cause: Cause
    request: Q
    function: str
    parts: tuple[JsonObject, ...]
    deadline_seconds: float
    gather: Callable[[Sequence[Any | FlyballError]], Any] = field(default=only, compare=False)
    attempts: int = 1
    memo: JsonObject = field(default_factory=dict)

    @property
    def id(self) -> EventId:
        """The id of the event that requested the job."""
        return self.cause.id


@dataclass(frozen=True)
class Worker(HandlerReducer, ABC, Generic[Q]):
    """Base of workers, whose methods are pure: the host runs the jobs, and publishes the facts that they return."""

    name: ClassVar[str]
    kind: ClassVar[JobKind | None] = None  # of its jobs, if they run networks
    row: ClassVar[type[Row]]
    returns: ClassVar[type[JobResult]]  # by each part of its jobs
    emits: ClassVar[frozenset[type[Payload]]]

    settings: RunSettings
    identity: WorkerIdentity

    @property
    def id_namespace(self) -> str:
        """Name from which the ids of the worker's facts derive. It has the node if several nodes answer one event."""
        return self.name

    @staticmethod
    def pending(rows: Mapping[str, Any]) -> Sequence[tuple[Cause, Any]]:
        """Return each pending job's (cause, argument of ``job``), most urgent first.

        By default these are the rows that have a ``cause``, oldest first.
        """
        waiting = [(row.cause, row) for row in rows.values() if row.cause]
        return sorted(waiting, key=lambda pair: pair[0].sequence)

    @abstractmethod
    def job(self, cause: Cause, pending: Any, states: States) -> Job[Q]:
        """Return the job of a pending request. Only controllers receive ``states``."""

    def jobs(
        self, rows: Mapping[str, Any], states: States, leased: Container[EventId] | None = None
    ) -> Iterator[Job[Q]]:
        """Iterate over the jobs of the pending requests, most urgent first; with ``leased``, of those requests only."""
        for cause, pending in self.pending(rows):
            if leased is None or cause.id in leased:
                yield self.job(cause, pending, states)

    def started(self, job: Job[Q]) -> tuple[Payload, ...]:
        """Return facts about a job that starts."""
        return ()

    def progressed(self, job: Job[Q], report: JsonObject) -> tuple[Payload, ...]:
        """Return facts about a report from a running job."""
        return ()

    def finished(self, job: Job[Q], parts: Sequence[JsonObject | FlyballError], seconds: float) -> tuple[Payload, ...]:
        """Validate and gather the results of a job's parts, and return facts about them."""
        return self.completed(job, job.gather(read_results(self.returns, parts)), seconds)

    @abstractmethod
    def completed(self, job: Job[Q], result: Any, seconds: float) -> tuple[Payload, ...]:
        """Return facts about a job's gathered result; the job took ``seconds``."""

    @abstractmethod
    def failed(self, job: Job[Q], error: FlyballError) -> tuple[Payload, ...]:
        """Return facts about a job that failed for good."""

    def backend(self, cause: Cause) -> Backend:
        """Return the backend of the request's configuration, which names its jobs."""
        return backend_of(self.settings.config(cause.subject or ""))

    def spec(self, cause: Cause, **arguments: Any) -> JsonObject:
        """Return a job's spec: the context, the settings of the request's configuration, and ``arguments``."""
        config = self.settings.config(cause.subject or "")
        return {**self.identity.context.model_dump(mode="json"), "config": config.model_dump(mode="json"), **arguments}


Publish = Callable[[str, Job[Any], Sequence[Payload]], Coroutine[None, None, None]]
"""Publishes facts about a job: (by, job, payloads). The facts' ids follow from ``by`` and the job."""


class UnusableResult(FlyballError):
    """A job's result or report does not fit into a fact."""


class JobRunner:
    """Runs at most ``capacity`` jobs of one worker at once. ``capacity`` may be changed."""

    def __init__(self, engine: Engine, capacity: int, publish: Publish) -> None:
        self._engine, self.capacity, self._publish = engine, capacity, publish
        self._running: dict[str, asyncio.Task[None]] = {}
        self._publishing: set[asyncio.Task[None]] = set()
        self._ended: set[str] = set()
        self._held_ids: tuple[EventId, ...] = ()
        self._draining = False
        self._log = structlog.get_logger("jobs")

    @property
    def running(self) -> int:
        """Number of jobs that run now."""
        return len(self._running)

    @property
    def held(self) -> int:
        """Number of jobs that run or come next."""
        return len(self._held_ids)

    def reconcile(self, group: asyncio.TaskGroup, worker: Worker[Any], jobs: Iterable[Job[Any]]) -> None:
        """Start the pending requests' jobs, and cancel all others.

        Jobs are started as far as capacity allows. A finished job is not started again before the worker has read its
        published result.
        """
        if self._draining:
            return
        jobs_by_id = {job.id: job for job in jobs}
        self._held_ids = tuple(job_id for job_id in jobs_by_id if job_id not in self._ended)
        self._ended &= jobs_by_id.keys()
        for job_id in self._running.keys() - jobs_by_id.keys():
            self._running.pop(job_id).cancel()
        for job_id in self._held_ids:
            if len(self._running) >= self.capacity:
                return
            if job_id not in self._running:
                self._running[job_id] = group.create_task(self._run(group, worker, jobs_by_id[job_id]))

    async def drain(self, seconds: float) -> None:
        """Start no more jobs, and wait for the running ones. After ``seconds`` they are cancelled, but stay pending."""
        self._draining = True
        if tasks := {*self._running.values(), *self._publishing}:
            await asyncio.wait(tasks, timeout=seconds)
        for task in (*self._running.values(), *self._publishing):  # read again: jobs may have published meanwhile
            task.cancel()

    async def _run(self, group: asyncio.TaskGroup, worker: Worker[Any], job: Job[Any]) -> None:
        numbers = itertools.count()

        async def publish(verb: str, facts: Sequence[Payload]) -> None:
            if facts:
                await self._publish(f"{worker.id_namespace}.{verb}", job, facts)

        def on_progress(report: JsonObject) -> None:
            facts = facts_of(worker.progressed, job, report)
            publishing = group.create_task(publish(f"progressed.{next(numbers)}", facts))
            self._publishing.add(publishing)
            publishing.add_done_callback(self._publishing.discard)

        # This task's logs get the ids, and engines pass them on to the processes that run the job.
        structlog.contextvars.bind_contextvars(traceparent=traceparent_of(job.cause))
        await publish("started", worker.started(job))
        clock = asyncio.get_running_loop()
        began = clock.time()
        try:
            results = await scatter(
                self._engine,
                job.function,
                job.parts,
                on_progress=on_progress,
                deadline_seconds=job.deadline_seconds,
                failures=job.attempts,
            )
            completed = facts_of(worker.finished, job, results, clock.time() - began)
        except FlyballError as error:
            trace = error.trace if isinstance(error, JobFailed) else ""  # of the user's own code, too
            self._log.error("job failed", event_id=job.id, function=job.function, error=str(error), trace=trace)
            await publish("ended", worker.failed(job, error))
        else:
            await publish("ended", completed)
        self._ended.add(job.id)
        self._running.pop(job.id, None)


def facts_of(about: Callable[..., tuple[Payload, ...]], job: Job[Any], *told: Any) -> tuple[Payload, ...]:
    """Make facts of a job's results and seconds, or of its progress report.

    Raises:
        UnusableResult: the facts can't hold it. The job is not repeated, because it would return the same.
    """
    try:
        return about(job, *told)
    except FlyballError:
        raise
    except Exception as error:
        raise UnusableResult(f"No fact can be made of what it returned: {type(error).__name__}: {error}") from error
