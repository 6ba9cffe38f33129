"""Participants that are commands: an engine of their jobs, and the job that runs one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import structlog

from flyball.app.core import FlyballError, JsonObject, Report
from flyball.app.engine import Engine
from flyball.app.engine.folder_command import REQUEST, RESULT, BadResult, Hints, private_folder, run_in_folder
from flyball.app.participation.tasks import FailureReason, task_of

HINTS = Hints(
    "The task counts as failed. The command's output is above, on stderr.",
    'Write the fields of the answer, {"discard": "why"} for an update that diverged, or {"bad_data": "why"}.',
)
RUN = "flyball.app.participation.commands:run_command"
REFUSALS: Mapping[str, FailureReason] = {"discard": "diverged", "bad_data": "bad_data"}


class CommandEngine:
    """Does each job by a command in a folder.

    The command's last argument is the folder. The task lies there as ``request.json``, and the command writes the
    answer into ``result.json``.

    Args:
        engine: runs ``run_command``, in processes of its own.
        command: the program and its arguments.
        working_folder: where the command runs.
        scratch: folder for the jobs' folders.
    """

    def __init__(self, engine: Engine, command: Sequence[str], working_folder: Path, scratch: Path) -> None:
        self._engine = engine
        self._spec = {"command": list(command), "working_folder": str(working_folder), "scratch": str(scratch)}

    async def capacity(self) -> int | None:
        """See ``Engine.capacity``."""
        return await self._engine.capacity()

    async def run(
        self,
        function: str,
        spec: JsonObject,
        on_progress: Report | None = None,
        deadline_seconds: float | None = None,
    ) -> JsonObject:
        """See ``Engine.run``."""
        wrapped = {**self._spec, "function": function, "spec": spec, "deadline_seconds": deadline_seconds}
        return await self._engine.run(RUN, wrapped, on_progress, deadline_seconds)

    async def close(self) -> None:
        """See ``Engine.close``."""
        await self._engine.close()


def run_command(spec: JsonObject, report: Report) -> JsonObject:
    """Do a task by a command (a job). Raises ``CommandFailed`` or ``BadResult``, or the command's own refusal."""
    began, task = monotonic(), task_of(spec["function"], spec["spec"])

    def on_progress(epoch: int, epochs: int, metrics: dict[str, Any]) -> None:
        try:
            progress = task.report(epoch, epochs, metrics)
        except BadResult as error:  # a line for people may look like progress
            structlog.get_logger("participant").warning("progress is unusable", error=error.message)
            return
        if progress:
            report(progress)

    with private_folder(Path(spec["scratch"])) as folder:
        document = task.model_dump(mode="json") | {"deadline_seconds": spec["deadline_seconds"]}
        (folder / REQUEST).write_text(json.dumps(document, indent=2))
        answer = run_in_folder(spec["command"], folder, spec["working_folder"], on_progress, HINTS)
    for name, reason in REFUSALS.items():
        if answer.keys() == {name}:
            raise FlyballError(str(answer[name]), code=task.codes.get(reason, ""))
    try:
        return task.result(answer, monotonic() - began)
    except BadResult as error:
        raise BadResult(f"{RESULT}: {error.message}", hint=HINTS.result) from error
