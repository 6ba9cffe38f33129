"""The engine's port: run a function elsewhere. The caller receives progress and results, for one or many specs."""

import asyncio
from collections.abc import Sequence
from typing import Protocol, Self

import structlog

from flyball.app.core import FlyballError, JsonObject, Report


class JobFailed(FlyballError):
    """The function raised.

    Another run with the same spec will most likely fail again. ``kind`` names the exception's class, for people.
    ``summary`` is its text, with file and line unless it is a ``FlyballError``, whose ``code`` is kept. ``trace`` is
    the end of its traceback.
    """

    def __init__(self, function: str, kind: str, summary: str, *, hint: str, trace: str, code: str = "") -> None:
        super().__init__(f"{kind}: {summary} (in {function})", hint=hint, code=code)
        self.function, self.kind, self.summary, self.trace = function, kind, summary, trace


class WorkerLost(FlyballError):
    """The process that ran the function died. Nothing is known of the result; the job may be tried again."""


class JobTimedOut(FlyballError):
    """The job exceeded its deadline. Its process was ended; the job may be tried again."""


class EngineClosed(FlyballError):
    """A job came after the engine was closed."""

    @classmethod
    def at(cls, function: str) -> Self:
        """Return the error for a job that came too late."""
        return cls(f"{function} was given to a closed engine.", hint="Start jobs before the daemon stops.")


TRACEPARENT = "TRACEPARENT"
"""The environment variable, OpenTelemetry's, from which a job's process and its commands read the trace context."""


def trace_context() -> str:
    """Return the trace context of this task's job, which is bound for its logs; empty without one."""
    return str(structlog.contextvars.get_contextvars().get("traceparent", ""))


class Engine(Protocol):
    """Runs jobs off the event loop. As many jobs run at once as it has workers; the others wait."""

    async def capacity(self) -> int | None:
        """Return how many jobs run at once, if it changes as machines come and go; None if it is fixed."""

    async def run(
        self,
        function: str,
        spec: JsonObject,
        on_progress: Report | None = None,
        deadline_seconds: float | None = None,
    ) -> JsonObject:
        """Run ``function`` (``"package.module:name"``, an ``flyball.app.core.Job``) and return its result.

        Args:
            function: resolved by the worker, so that the engine depends on no job.
            spec: the job's argument.
            on_progress: called on the event loop with each report, in order, before ``run`` returns.
            deadline_seconds: how long the job may take once a worker has it; ``None``: no limit.

        Cancelling abandons the job: no report is delivered afterwards. Raises ``JobFailed``, ``WorkerLost``,
        ``JobTimedOut``, ``EngineClosed``.
        """

    async def close(self) -> None:
        """Stop the workers; jobs still running are lost. Idempotent."""


DEATHS, TIMEOUTS = 8, 2
"""Lost processes and timeouts after which a part is given up. A process seldom dies because of its job."""


async def scatter(
    engine: Engine,
    function: str,
    specs: Sequence[JsonObject],
    *,
    on_progress: Report | None = None,
    deadline_seconds: float | None = None,
    failures: int = 1,
) -> list[JsonObject | FlyballError]:
    """Run ``function`` for all ``specs``.

    The failure of one part does not stop the others.

    Args:
        engine: runs the parts, as many at once as it has workers.
        function: as in ``Engine.run``.
        specs: one for each part.
        on_progress: receives all parts' reports.
        deadline_seconds: of one attempt at one part.
        failures: exceptions after which a part is given up; a part that raised will most likely raise again.

    Returns each part's result in the order of ``specs``, or the error that its last attempt ended with. Cancelling
    abandons all parts.
    """

    async def part(spec: JsonObject) -> JsonObject | FlyballError:
        left: dict[type[FlyballError], int] = {WorkerLost: DEATHS, JobTimedOut: TIMEOUTS, JobFailed: failures}
        while True:
            try:
                return await engine.run(function, spec, on_progress, deadline_seconds)
            except FlyballError as error:
                left[type(error)] = left.get(type(error), 1) - 1
                if left[type(error)] <= 0:
                    return error
                structlog.get_logger("engine").warning("job tried again", function=function, error=str(error))
                await asyncio.sleep(0)  # waiting parts run first, otherwise all deaths could hit one part

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part(spec)) for spec in specs]
    return [task.result() for task in tasks]
