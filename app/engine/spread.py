"""Many calls of one function, spread over processes."""

import asyncio
from collections.abc import Callable, Sequence

from flyball.app.core import JsonObject
from flyball.app.engine.local import LocalEngine


async def spread(
    function: str, specs: Sequence[JsonObject], processes: int, on_result: Callable[[JsonObject], None]
) -> list[JsonObject]:
    """Call ``function`` for all specs in separate processes.

    Returns the results in the order of the specs. ``on_result`` receives each result as it comes. The first failure
    ends the others.
    """
    engine = LocalEngine(min(processes, len(specs)))

    async def call(spec: JsonObject) -> JsonObject:
        result = await engine.run(function, spec)
        on_result(result)
        return result

    try:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(call(spec)) for spec in specs]
        return [call.result() for call in calls]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        await engine.close()
