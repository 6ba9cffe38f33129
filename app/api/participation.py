"""Participants: programs of the user's own that do a run's work (ADR-038).

A participant hosts the same daemons as a machine of Flyball, with another engine: leases, signs of life, deadlines,
retries and ids are theirs.
"""

import asyncio
import fcntl
import re
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, get_args

from flyball.app.api.runs import RunLocation, find_broker, open_bus, past_events
from flyball.app.config import CPU, BadSettings, RunSettings
from flyball.app.config.deployment import NODE_PATTERN
from flyball.app.config.loading import Loaded
from flyball.app.core import BadUsage, FlyballError, is_broker, suggest
from flyball.app.engine import Engine
from flyball.app.engine.relay import RelayEngine
from flyball.app.events import RunConfigured
from flyball.app.job_specs import JobContext
from flyball.app.participation.tasks import TASK_KINDS, TaskKind
from flyball.daemons import distribution, evaluation, quality_monitor, selfplay_worker, training
from flyball.daemons.evaluation import Evaluator
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.process import PATIENCE_SECONDS, run_host
from flyball.daemons.spec import DaemonSpec

SERVED: Mapping[TaskKind, DaemonSpec] = {
    "selfplay": selfplay_worker.DAEMON,
    "inspection": quality_monitor.DAEMON,
    "training": training.DAEMON,
    "evaluation": evaluation.DAEMON,
    "distribution": distribution.DAEMON,
}
"""The daemon that a participant hosts for each kind of task."""

ALIASES = {"play": "selfplay", "selfplay_worker": "selfplay", "quality_monitor": "inspection"}
SETTINGS_SECONDS = 0.5
"""Pause until a broker without a record of settings is asked again."""


class NameTaken(FlyballError):
    """Another participant with this name runs."""


def kinds_of(names: Collection[str]) -> tuple[TaskKind, ...]:
    """Return the kinds of tasks with these names or their aliases. Raises ``BadUsage``."""
    kinds: list[TaskKind] = []
    for name in names:
        kind = ALIASES.get(name, name)
        if kind not in TASK_KINDS:
            raise BadUsage(f"There is no kind of task {name!r}.", hint=suggest(name, TASK_KINDS))
        kinds.append(next(known for known in get_args(TaskKind) if known == kind))
    if not kinds:
        raise BadUsage("A participant needs a kind of task.", hint=f"There are: {', '.join(TASK_KINDS)}.")
    return tuple(dict.fromkeys(kinds))


class HeldName:
    """A participant's name in a run, which no other process of this machine holds.

    Files of state belong to the name, so a participant that was killed goes on when it is started again. Without keys
    the names are NODE.1, NODE.2 and so on, and the first free one is taken. A key is for one name, the node's.

    Raises ``NameTaken``, or ``BadUsage`` for a name that cannot be a node's.
    """

    def __init__(self, loaded: Loaded, folder: Path, name: str | None) -> None:
        node, keyed = loaded.deployment.node, loaded.deployment.keys.secret is not None
        if keyed and name not in (None, node):
            raise BadUsage(
                f"The key of {node} may not speak for {name}.", hint="Leave the name out, or use a key of that name."
            )
        if name is not None and (not re.fullmatch(NODE_PATTERN, name) or (name == node and not keyed)):
            raise BadUsage(
                f"{name!r} cannot be a participant's name.",
                hint=f"Use up to 63 letters, digits, '.', '_' and '-'; {node} is the node's own name.",
            )
        folder.mkdir(parents=True, exist_ok=True)
        chosen = node if keyed else name
        names: Iterator[str] = (f"{node}.{number}" for number in count(1)) if chosen is None else iter((chosen,))
        for self.name in names:
            self._file = (folder / f"{self.name}.lock").open("wb")
            with suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            self._file.close()
        raise NameTaken(
            f"Another participant called {chosen} runs in this run folder.",
            hint="Stop it, or give this one another name; with keys, a key of its own.",
        )

    def close(self) -> None:
        """Give the name up."""
        self._file.close()


async def read_settings(location: RunLocation, loaded: Loaded) -> RunSettings:
    """Wait for the broker, and return the settings in force. Raises ``ForeignSettings``."""
    bus = open_bus(location, loaded, PATIENCE_SECONDS, "participant")
    try:
        while True:
            latest = None
            async for event in past_events(bus, {RunConfigured}):
                latest = event if is_broker(event.source) else latest
            if latest is not None:
                return RunSettings.recorded(latest.data.settings, latest.source)
            await asyncio.sleep(SETTINGS_SECONDS)
    finally:
        await bus.close()


def check_kinds(kinds: Collection[TaskKind], settings: RunSettings) -> None:
    """Refuse kinds of tasks that a run does not leave to participants. Raises ``BadSettings``."""
    if not settings.is_external:
        raise BadSettings(
            f"This run does its work itself, by the backend {settings.configs[0].backend}.",
            hint='Participants take part where it is external: set games.KEY.backend = "external".',
        )
    if settings.advises:
        raise BadSettings(
            "This run only advises, and asks nothing of participants.",
            hint='Start a run with mode = "govern" in another folder; the mode of a run folder cannot change.',
        )
    if "inspection" in kinds and not settings.external_inspection:
        raise BadSettings(
            "This run accepts every shard, and leaves no inspections to participants.",
            hint="Set external_inspection = true, and start the run again.",
        )


async def host_daemons(
    location: RunLocation,
    kinds: Collection[TaskKind],
    engine: Engine,
    stop: asyncio.Event,
    *,
    name: str,
    slots: int = 1,
    say: Callable[[str], None],
) -> None:
    """Host the daemons of ``kinds`` as ``name`` until ``stop`` is set. The engine does their jobs, and stays open.

    Raises ``BadSettings``, or the errors of hosts.
    """
    loaded = location.load()
    endpoint, listens = find_broker(location.folder, loaded.deployment)
    if not listens:
        say(f"Waiting for a broker at {endpoint}.")
    async with asyncio.TaskGroup() as group:
        reading, stopping = group.create_task(read_settings(location, loaded)), group.create_task(stop.wait())
        await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not reading.done():
            reading.cancel()
            return
    check_kinds(kinds, reading.result())
    say(f"{name} takes part in the run in {location.folder.path}: {', '.join(kinds)}.")
    context = JobContext(**dict(CPU), store=loaded.store(location.folder))
    async with asyncio.TaskGroup() as group:
        for kind in kinds:
            spec = SERVED[kind]
            spec = spec if spec.worker is Evaluator else replace(spec, capacity=slots)
            identity = WorkerIdentity(f"{spec.name}@{name}", name, context)
            group.create_task(run_host(spec, identity, loaded, location.folder, engine=engine, stop=stop))


async def relay_jobs(hosting: Coroutine[Any, Any, None], engine: RelayEngine, stop: asyncio.Event) -> None:
    """Host daemons whose jobs the engine hands out, and hand out no others once ``stop`` is set."""
    try:
        async with asyncio.TaskGroup() as group:
            hosted, stopping = group.create_task(hosting), group.create_task(stop.wait())
            await asyncio.wait((hosted, stopping), return_when=asyncio.FIRST_COMPLETED)
            engine.withdraw()
            stopping.cancel()
    finally:
        await engine.close()


def first_error(error: BaseException) -> BaseException:
    """Return the first error in nested groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
