"""The parts of one job, spread over an engine's workers; one part's failure leaves the others alone."""

import asyncio
from collections.abc import Sequence

import structlog

from app.core import FlyballError
from app.engine.port import Engine, JobFailed, JobTimedOut, JsonObject, Report, WorkerLost

DEATHS, TIMEOUTS = 8, 2
"""How often a part may lose its process or time out before it is given up. A process seldom dies because of its job."""


async def scatter(
    engine: Engine,
    function: str,
    specs: Sequence[JsonObject],
    *,
    on_progress: Report | None = None,
    deadline_seconds: float | None = None,
    failures: int = 1,
) -> list[JsonObject | FlyballError]:
    """Run ``function`` for all ``specs``, as many at once as the engine has workers.

    Args:
        engine: runs the parts.
        function: as in ``Engine.run``.
        specs: one for each part.
        on_progress: receives all parts' reports.
        deadline_seconds: of one attempt at one part.
        failures: how often a part may raise; one that raised would most likely raise again.

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
                await asyncio.sleep(0)  # others that wait come first, or one part would take all the deaths

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part(spec)) for spec in specs]
    return [task.result() for task in tasks]
