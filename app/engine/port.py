"""The engine's port: run a function elsewhere, receive its progress and its result."""

from collections.abc import Callable
from typing import Any, Protocol, Self

from app.core import FlyballError

JsonObject = dict[str, Any]
Report = Callable[[JsonObject], None]
Job = Callable[[JsonObject, Report], JsonObject]
"""A job: ``def job(spec, report) -> result``; everything that crosses is JSON."""


class JobFailed(FlyballError):
    """The function raised. Running it again with the same spec will most likely fail again.

    Attributes:
        function: what was run.
        kind: name of the exception's class, for instance ``TrainingDiverged``.
        summary: the exception's text.
        trace: the end of its traceback.
    """

    def __init__(self, function: str, kind: str, summary: str, *, hint: str, trace: str) -> None:
        super().__init__(f"{function} raised {kind}: {summary}", hint=hint)
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


class Engine(Protocol):
    """Runs jobs off the event loop, as many at once as it has workers; the others wait."""

    async def run(
        self,
        function: str,
        spec: JsonObject,
        on_progress: Report | None = None,
        deadline_seconds: float | None = None,
    ) -> JsonObject:
        """Run ``function`` (``"package.module:name"``, a :data:`Job`) and return its result.

        Args:
            function: resolved by the worker, so that the engine depends on no job.
            spec: the job's argument.
            on_progress: called on the event loop with each report, in order, before ``run`` returns.
            deadline_seconds: how long the job may take once a worker has it; ``None`` for ever.

        Cancelling abandons the job: no report is delivered afterwards. Raises ``JobFailed``, ``WorkerLost``,
        ``JobTimedOut``, ``EngineClosed``.
        """
        ...

    async def close(self) -> None:
        """Stop the workers; jobs still running are lost. Idempotent."""
        ...
