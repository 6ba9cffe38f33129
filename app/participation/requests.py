"""Requests as participants see them: a task, and the ways to answer it."""

from time import monotonic
from types import TracebackType
from typing import Any, Self

from flyball.app.core import FlyballError, JsonObject, located
from flyball.app.engine.relay import HandedJob
from flyball.app.participation.tasks import FailureReason, Task, TaskKind, task_of


class AnsweredTwice(FlyballError):
    """A second answer to a request."""


class Request:
    """A task for a participant, which answers it once, by ``succeed`` or ``fail``.

    The task's fields are its items, as JSON: ``request["learning_rate"]``. As a context manager, a request fails with
    the exception that its block raises, and the exception ends there.

    Attributes:
        kind: selfplay, inspection, training, evaluation or distribution.
        id: the same whenever the same task is handed out again, for instance after a crash.
        task: the task with all its fields.
        deadline_seconds: time to answer, from when the request was handed out; then it is handed out again.
        document: the whole request as JSON.
    """

    def __init__(self, job: HandedJob) -> None:
        self._job, self._began, self._answered = job, monotonic(), False
        self.task: Task = task_of(job.function, job.spec)
        self.kind: TaskKind = self.task.kind
        self.id, self.deadline_seconds = self.task.id, job.deadline_seconds
        self.document: JsonObject = self.task.model_dump(mode="json") | {"deadline_seconds": self.deadline_seconds}

    @property
    def is_answered(self) -> bool:
        """True once it has an answer."""
        return self._answered

    @property
    def is_wanted(self) -> bool:
        """False once nobody waits for the answer: its time is over, or it is not needed any more."""
        return self._job.is_wanted

    def __getitem__(self, field: str) -> Any:
        return self.document[field]

    def progress(self, epoch: int, epochs: int, **metrics: Any) -> None:
        """Report the progress of a training, for curves and dashboards; of other tasks nothing is shown."""
        self.report(epoch, epochs, metrics)

    def report(self, epoch: int, epochs: int, metrics: JsonObject) -> None:
        """See ``progress``; the metrics may have any names."""
        if report := self.task.report(epoch, epochs, metrics):
            self._job.send({"progress": report})

    def succeed(self, /, **answer: Any) -> bool:
        """Answer with a result, whose fields depend on the kind. Return whether anybody waits for it.

        A ``model`` or ``shard`` is the SHA-256 of its content, alone or in an address, or the ``Path`` of a file.
        Raises ``BadResult`` for an answer that does not fit; the request is then still open.
        """
        result = self.task.result(answer, monotonic() - self._began)
        return self._answer({"result": result})

    def fail(self, reason: FailureReason, text: str) -> bool:
        """Answer that it could not be done; return whether anybody waits for it.

        ``diverged`` discards an update, ``bad_data`` blames shards or models, ``error`` is for everything else.
        """
        return self._answer({"error": self.task.error(reason, str(text))})

    def give_up(self, why: str) -> None:
        """Report the worker as lost, so that the request is handed out again."""
        self._job.send({"lost": why})

    def _answer(self, frame: JsonObject) -> bool:
        if self._answered:
            raise AnsweredTwice(f"The request {self.id} was answered already.", hint="Answer each request once.")
        wanted = self._job.send(frame)
        self._answered = True
        return wanted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):  # such as Ctrl-C: the task stays to be done
            return False
        if not self._answered:
            self.fail("error", f"{type(error).__name__}: {located(error)}")
        return True

    def __repr__(self) -> str:
        return f"<Request of {self.kind} {self.id} for {self.task.config_key}>"
