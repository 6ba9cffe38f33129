"""Workers: reducers that also want jobs run.

A worker's rows say which work is pending; ``jobs`` derives from them what should be running now. Nothing else is
remembered, so a worker killed at any moment picks up by folding its rows and running what they still ask for. The
result is a fact whose id follows from the request, so a repetition counts once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from app.config import RunSettings
from app.core import EventId, FlyballError
from app.events import AnyRow, Cause, Payload, Reducer

R = TypeVar("R", bound=AnyRow)
Q = TypeVar("Q", bound=Payload)
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a daemon runs: its name on the bus, its node, and the store its jobs use."""

    name: str
    node: str
    store: str


def only(parts: Sequence[Json | FlyballError]) -> Json:
    """Return the result of a job's only part, or raise what it ended with."""
    (part,) = parts
    if isinstance(part, FlyballError):
        raise part
    return part


@dataclass(frozen=True, slots=True)
class Job(Generic[Q]):
    """Calls of ``function`` ('package.module:name') in compute processes, wanted by an event with this payload.

    Attributes:
        cause: the event.
        request: its payload.
        function: what is called.
        parts: the argument of each call; they run at once, as far as the engine has workers.
        deadline_seconds: how long one attempt at one part may take; then its process is killed and replaced.
        gather: combines the parts' results, or raises ``FlyballError``; a part that failed finally is its last error.
        attempts: most attempts at a part that raises.
        context: handed back to the worker with the result; not part of the job.
    """

    cause: Cause
    request: Q
    function: str
    parts: tuple[Json, ...]
    deadline_seconds: float
    gather: Callable[[Sequence[Json | FlyballError]], Json] = field(default=only, compare=False)
    attempts: int = 1
    context: Json = field(default_factory=dict)

    @property
    def id(self) -> EventId:
        """The id of the event that wants it."""
        return self.cause.id


class Worker(Reducer[R], Protocol[R, Q]):
    """A reducer whose rows ask for jobs. The methods are pure; the host runs the jobs and publishes the facts."""

    def jobs(self, rows: Mapping[str, R]) -> Iterable[Job[Q]]:
        """Return the jobs that should run now, most urgent first."""
        ...

    def started(self, job: Job[Q]) -> tuple[Payload, ...]:
        """Return what to say when a job starts."""
        ...

    def progressed(self, job: Job[Q], report: Json) -> tuple[Payload, ...]:
        """Return what to say when a job reports progress."""
        ...

    def completed(self, job: Job[Q], result: Json) -> tuple[Payload, ...]:
        """Return what to say of a job's result."""
        ...

    def failed(self, job: Job[Q], error: FlyballError) -> tuple[Payload, ...]:
        """Return what to say when a job failed for good."""
        ...


@dataclass(frozen=True)
class QuietWorker(Generic[Q]):
    """Base of workers: says nothing of starts and progress."""

    settings: RunSettings
    place: Place

    def started(self, job: Job[Q]) -> tuple[Payload, ...]:  # noqa: ARG002 - the protocol's argument
        """Say nothing."""
        return ()

    def progressed(self, job: Job[Q], report: Json) -> tuple[Payload, ...]:  # noqa: ARG002 - the protocol's arguments
        """Say nothing."""
        return ()

    def config_json(self, cause: Cause) -> Json:
        """Return the settings of the configuration that a request is about."""
        return self.settings.config(cause.subject or "").model_dump(mode="json")
