"""A stage for daemon hosts, with scripted engines. Its journal and its bus are in memory."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from flyball.app.bus.memory import MemoryBus
from flyball.app.bus.ports import Sign
from flyball.app.config import GAMES, RunSettings
from flyball.app.events import RunConfigured, SelfplayRequested, originate
from flyball.app.job_specs import JobContext
from flyball.app.journal import history
from flyball.app.journal.memory import MemoryJournal, MemoryStateStore
from flyball.app.journal.ports import StateKey
from flyball.daemons.clock import SystemClock
from flyball.daemons.host import Host, Ports, Rhythm
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.registry import DAEMONS
from flyball.daemons.saved_state import KNOWN_KEY
from flyball.daemons.spec import DaemonSpec
from flyball.daemons.supervisor import Notifier

KEY, MODEL = "tic_tac_toe_2p", "a" * 64
OTHER_KEY = "connect_four_2p"
SETTINGS = RunSettings(configs=(GAMES[KEY], GAMES[OTHER_KEY]))
WORKER = SETTINGS.selfplay_workers[0]
RESULT = {"shard": "b" * 64, "rows": 9, "games": 1, "mean_length": 9.0, "truncated": 0, "seconds": 0.1}
REQUEST = SelfplayRequested(worker=WORKER, model=MODEL, lineups=(), games=1, seed=1, temperature=1.0, probe=False)


def rows_of(states: MemoryStateStore) -> dict[StateKey, bytes]:
    """Return saved rows without the one that goes with the cursor."""
    return {key: row for key, row in states.load()[1].items() if key != KNOWN_KEY}


def logged(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what was logged since the last call, on stdout, or on stderr once ``flyball.app.api`` was imported."""
    return "".join(capsys.readouterr())


class ScriptedEngine:
    """An engine that plays a script of outcomes.

    An outcome is an exception to raise, or a result. The last one is repeated.
    """

    def __init__(self, *script: Any) -> None:
        self.script, self.calls, self.release = list(script), 0, asyncio.Event()
        self.release.set()

    async def capacity(self) -> int | None:
        return None

    async def run(
        self, function: str, spec: dict[str, Any], on_progress: Any = None, deadline_seconds: float | None = None
    ) -> dict[str, Any]:
        self.calls += 1
        outcome = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        await self.release.wait()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def close(self) -> None:
        pass


class Stage:
    """A bus with a configured run, on which daemons start and stop."""

    def __init__(self) -> None:
        self.journal, self.clock, self.boots = MemoryJournal(), SystemClock(), 0
        self.bus = MemoryBus(self.journal, self.clock, producer="broker@laptop")
        self.signs: list[Sign] = []

    async def publish(self, data: Any, event_id: str, subject: str | None = KEY) -> None:
        await self.bus.publish(originate(data, event_id=event_id, time=self.clock.now(), subject=subject))

    async def configure(self) -> None:
        await self.publish(RunConfigured(run_id="r", settings=SETTINGS.model_dump(mode="json")), "configured", None)

    def host(
        self,
        daemon: str | DaemonSpec,
        states: MemoryStateStore,
        engine: ScriptedEngine | None = None,
        notifier: Notifier | None = None,
        sink: Any = None,
        companion: Any = None,
    ) -> Host:
        self.boots += 1
        self.bus.show_life = self.signs.append  # type: ignore[method-assign] # the stage's hosts share one bus
        spec = daemon if isinstance(daemon, DaemonSpec) else DAEMONS[daemon]
        name = WORKER if engine else f"{spec.name}@laptop"
        identity = WorkerIdentity(name, "laptop", JobContext(store="store"))
        ports = Ports(self.bus, states, self.clock, engine, notifier or Notifier(""), sink, companion)
        return Host(spec, identity, f"boot-{self.boots}", ports, Rhythm(0.05, 0.2))

    @asynccontextmanager
    async def running(self, host: Host) -> AsyncIterator[asyncio.Event]:
        """Run a host until the context ends. Yields the event that stops it."""
        stop = asyncio.Event()
        async with asyncio.timeout(200), asyncio.TaskGroup() as group:
            group.create_task(host.run(stop))
            yield stop
            stop.set()

    async def _while(self, missing: Callable[[], bool], host: Host) -> None:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group, asyncio.timeout(200):
            running = group.create_task(host.run(stop))
            while missing() and not running.done():
                await asyncio.sleep(0.01)
            stop.set()

    async def until(self, payload: type[Any], host: Host, count: int = 1) -> list[Any]:
        """Run a host until ``count`` events of a type exist. Returns all events of the type."""
        await self._while(lambda: len(self.of(payload)) < count, host)
        return self.of(payload)

    async def beats(self, host: Host, count: int = 1) -> list[Sign]:
        """Run a host until it has shown ``count`` signs of life. Returns these signs."""
        before = len(self.signs)
        await self._while(lambda: len(self.signs) < before + count, host)
        return self.signs[before:]

    def of(self, payload: type[Any]) -> list[Any]:
        return [event.data for event in history(self.journal, types={payload})]

    def check_nothing_twice(self) -> None:
        ids = Counter(event.id for event in history(self.journal))
        assert max(ids.values()) == 1


class WatchedBus(MemoryBus):
    """A bus that remembers the ids of the events to publish."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked = list[str]()

    async def publish_many(self, envelopes: Any) -> tuple[int, ...]:
        self.asked += [envelope.id for envelope in envelopes]
        return await super().publish_many(envelopes)
