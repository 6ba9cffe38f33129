"""Connections to a run: publish, subscribe, read its journal and states."""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload
from weakref import finalize

from flyball.app.api.publishing import check_id, check_publishable, check_scope, payload_of, publish_on
from flyball.app.api.run_reader import P, RunReader, warn
from flyball.app.api.runs import (
    NotRunning,
    RunLocation,
    check_listening,
    connected,
    locate_run,
    open_run,
    read_status,
)
from flyball.app.api.selection import Selection, select
from flyball.app.bus import Bus
from flyball.app.bus.ports import BusClosed
from flyball.app.controllers import FeedbackState
from flyball.app.core import BadUsage, EventId, derive_id
from flyball.app.events import Event, Payload, originate, resolve
from flyball.app.journal.database import StorageError
from flyball.app.status.status import Status
from flyball.daemons.clock import SystemClock, boot_id

if TYPE_CHECKING:
    from flyball.app.replay.controller_reports import ControllerReport
    from flyball.app.replay.run_comparison import RunComparison
    from flyball.app.replay.run_report import RunReport
    from flyball.app.status.league import LeagueView

T = TypeVar("T")
LOOK_SECONDS = 0.2
CHUNK = 1000  # events that a thread reads before the event loop sees them


@dataclass(frozen=True, slots=True)
class Published:
    """Journal position and id of a published event."""

    position: int
    id: EventId


class AsyncConnection:
    """Asynchronous access to a run's files and its broker.

    Use it as an async context manager. It connects to the broker on first use. See ``connect_async``.
    """

    def __init__(self, location: RunLocation, timeout: float) -> None:
        self._reader, self._location, self._timeout = RunReader(location), location, timeout
        self._boot, self._numbers = boot_id(), count()
        self._stack = AsyncExitStack()
        self._bus: Bus | None = None
        self._opening = asyncio.Lock()

    async def publish(
        self,
        event: Payload | str,
        data: Mapping[str, Any] | None = None,
        *,
        config_key: str | None = None,
        event_id: str | None = None,
    ) -> Published:
        """Publish an event; return its position and id once durable.

        Args:
            event: a payload, or the name of an event type with its ``data``.
            data: fields of the payload.
            config_key: the configuration that the event is about.
            event_id: an id; an event whose id is recorded already is not recorded again.

        Raises ``BadData``, ``BadUsage``, ``UnknownEventType``, ``UnknownConfig``, ``NotRunning``, ``NotAcknowledged``
        or ``IdTaken``.
        """
        if data and not isinstance(event, str):
            raise BadUsage(f"data is for the name of an event type; this {event.event_name} has its own.")
        payload = payload_of(resolve(event), dict(data or {})) if isinstance(event, str) else event
        check_publishable(type(payload))
        check_id(event_id)
        await asyncio.to_thread(check_scope, self._location, payload, config_key, event_id, warn)
        chosen = EventId(event_id or derive_id("api", self._boot, next(self._numbers)))
        envelope = originate(payload, event_id=chosen, time=SystemClock().now(), subject=config_key)
        (position,) = await publish_on(await self._connected(), [envelope], warn, own_id=event_id is not None)
        return Published(position, chosen)

    @overload
    def subscribe(
        self,
        kind: type[P],
        /,
        *kinds: type[P],
        config_key: str | None = ...,
        after: int | None = ...,
        seconds: float | None = ...,
    ) -> AsyncGenerator[Event[P]]: ...
    @overload
    def subscribe(
        self,
        *patterns: str | type[Payload],
        config_key: str | None = ...,
        after: int | None = ...,
        seconds: float | None = ...,
    ) -> AsyncGenerator[Event[Any]]: ...

    def subscribe(
        self,
        *patterns: str | type[Payload],
        config_key: str | None = None,
        after: int | None = None,
        seconds: float | None = None,
    ) -> AsyncGenerator[Event[Any]]:
        """Iterate over events as they are recorded.

        Args:
            patterns: as in ``journal``.
            config_key: only events about this configuration.
            after: begin after this position; by default after what is recorded now.
            seconds: end this many seconds after the first step; by default never.

        Raises ``UnknownEventType``, ``NotRunning`` or ``BrokerUnavailable``.
        """
        selection = select(patterns, config_key)
        return self._events(selection, self._reader.head() if after is None else after, seconds)

    async def _events(self, selection: Selection, after: int, seconds: float | None) -> AsyncGenerator[Event[Any]]:
        end = None if seconds is None else asyncio.get_running_loop().time() + seconds
        bus = await self._connected()
        async with bus.subscribe(selection.types, after=after) as subscription:
            while True:
                try:
                    async with asyncio.timeout_at(end):
                        batch = await anext(subscription)
                except (TimeoutError, StopAsyncIteration):
                    return
                for event in batch.events:
                    if selection.config_key in (None, event.subject):
                        yield event

    async def _connected(self) -> Bus:
        async with self._opening:
            if self._bus is None:
                bus = connected(self._location, self._timeout, producer="api")
                self._bus = await self._stack.enter_async_context(bus)
        return self._bus

    @overload
    def journal(
        self,
        kind: type[P],
        /,
        *kinds: type[P],
        config_key: str | None = ...,
        since: str | int | None = ...,
        last: int | None = ...,
    ) -> AsyncGenerator[Event[P]]: ...
    @overload
    def journal(
        self,
        *patterns: str | type[Payload],
        config_key: str | None = ...,
        since: str | int | None = ...,
        last: int | None = ...,
    ) -> AsyncGenerator[Event[Any]]: ...

    async def journal(
        self,
        *patterns: str | type[Payload],
        config_key: str | None = None,
        since: str | int | None = None,
        last: int | None = None,
    ) -> AsyncGenerator[Event[Any]]:
        """Iterate over the events that are recorded now. See ``RunReader.journal``."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:  # one thread, because SQLite's connections are bound to theirs
            events = await loop.run_in_executor(
                pool, lambda: self._reader.journal(*patterns, config_key=config_key, since=since, last=last)
            )
            try:
                while chunk := await loop.run_in_executor(pool, lambda: list(islice(events, CHUNK))):
                    for event in chunk:
                        yield event
            finally:
                await loop.run_in_executor(pool, events.close)

    async def state(self, config_key: str) -> FeedbackState:
        """Return a configuration's feedback state. See ``RunReader.state``."""
        return await asyncio.to_thread(self._reader.state, config_key)

    async def league(self, config_key: str) -> "LeagueView":
        """Return a configuration's league. See ``RunReader.league``."""
        return await asyncio.to_thread(self._reader.league, config_key)

    async def controllers(self, config_key: str | None = None) -> "tuple[ControllerReport, ...]":
        """Return what each controller watches, owns and decided. See ``RunReader.controllers``."""
        return await asyncio.to_thread(self._reader.controllers, config_key)

    async def report(self, since: str | int | None = None) -> "RunReport":
        """Return what the run trained and decided. See ``RunReader.report``."""
        return await asyncio.to_thread(self._reader.report, since)

    async def compare(self, other: str | Path, *, config_file: str | Path | None = None) -> "RunComparison":
        """Return this run beside another one. See ``RunReader.compare``."""
        return await asyncio.to_thread(self._reader.compare, other, config_file=config_file)

    async def status(self) -> Status:
        """Return the status of configurations and daemons that ``flyball status`` shows.

        The broker knows the living daemons and their jobs. ``running`` is False when no process of the run is alive.
        """
        return await asyncio.to_thread(read_status, self._location, warn)

    async def close(self) -> None:
        """Close the connection to the broker. Idempotent."""
        await self._stack.aclose()
        self._bus = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to the run in {self._location.folder.path}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Connection(RunReader):
    """Synchronous access to a run's files and its broker.

    Use it as a context manager. It connects to the broker on first use. See ``connect``.

    An event loop in a separate thread serves the connection to the broker, so that this class also works in notebooks.
    """

    def __init__(self, location: RunLocation, timeout: float) -> None:
        super().__init__(location)
        self._run = AsyncConnection(location, timeout)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=_serve, args=(self._loop,), name="flyball connection", daemon=True)
        self._thread.start()
        self._forgotten = finalize(self, _abandon, self._run, self._loop)  # in notebooks, many are never closed
        self._forgotten.atexit = False

    def publish(
        self,
        event: Payload | str,
        data: Mapping[str, Any] | None = None,
        *,
        config_key: str | None = None,
        event_id: str | None = None,
    ) -> Published:
        """Publish an event; return its position and id. See ``AsyncConnection.publish``."""
        return self._call(self._run.publish(event, data, config_key=config_key, event_id=event_id))

    @overload
    def subscribe(
        self,
        kind: type[P],
        /,
        *kinds: type[P],
        config_key: str | None = ...,
        after: int | None = ...,
        seconds: float | None = ...,
    ) -> Generator[Event[P]]: ...
    @overload
    def subscribe(
        self,
        *patterns: str | type[Payload],
        config_key: str | None = ...,
        after: int | None = ...,
        seconds: float | None = ...,
    ) -> Generator[Event[Any]]: ...

    def subscribe(
        self,
        *patterns: str | type[Payload],
        config_key: str | None = None,
        after: int | None = None,
        seconds: float | None = None,
    ) -> Generator[Event[Any]]:
        """Iterate over events as they are recorded. See ``AsyncConnection.subscribe``."""
        return self._steps(self._run.subscribe(*patterns, config_key=config_key, after=after, seconds=seconds))

    def status(self) -> Status:
        """Return the status of the run. See ``AsyncConnection.status``."""
        return self._call(self._run.status())

    def _steps(self, events: AsyncGenerator[Event[Any]]) -> Generator[Event[Any]]:
        async def step() -> Event[Any] | None:
            return await anext(events, None)

        try:
            while (event := self._call(step())) is not None:
                yield event
        finally:  # without waiting, because the loop's thread no longer runs when a program ends
            if not self._loop.is_closed():
                asyncio.run_coroutine_threadsafe(events.aclose(), self._loop)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            coroutine.close()
            raise BusClosed("The connection is closed.", hint="Open another one: flyball.connect(...).")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:  # for instance Ctrl-C: nothing waits for the result any longer
            future.cancel()
            raise

    def close(self) -> None:
        """Close the connection to the broker. Idempotent."""
        if not self._loop.is_closed():
            self._call(self._run.close())
            self._call(self._loop.shutdown_asyncgens())
            self._forgotten.detach()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _abandon(run: AsyncConnection, loop: asyncio.AbstractEventLoop) -> None:
    """End a connection that was not closed, without waiting: this may be the loop's own thread."""

    async def end() -> None:
        try:
            await run.close()
            await loop.shutdown_asyncgens()
        finally:
            loop.stop()

    asyncio.run_coroutine_threadsafe(end(), loop)


def _await_start(location: RunLocation, seconds: float) -> None:
    """Wait until a run's broker listens. Raises ``NotAJournal`` or ``NotRunning`` after ``seconds``."""
    end = time.monotonic() + seconds
    while True:
        try:
            with open_run(location):
                check_listening(location)
        except (StorageError, NotRunning):
            if time.monotonic() > end:
                raise
            time.sleep(LOOK_SECONDS)
        else:
            return


def connect(
    run: str | Path = "run", *, config_file: str | Path | None = None, timeout: float = 10.0, wait: float = 0.0
) -> Connection:
    """Connect to a run: publish, subscribe, read its journal and states.

    Args:
        run: the run folder.
        config_file: the settings file of the run, if it is not the folder's ``flyball.toml``.
        timeout: seconds to wait for the broker's answers.
        wait: seconds to wait for a run that is being started; 0 also accepts one that is not running.

    Journal and state are read from files, also while the run is not running. Raises ``NotAJournal`` for a folder
    without a run, ``ForeignSettings``, or ``NotRunning`` after ``wait``.

    >>> with flyball.connect("run") as run:
    ...     state = run.state("tic_tac_toe_2p")
    ...     names = [event.data.event_name for event in run.journal("MODEL_*")]
    >>> state.lineage.current.step, names
    (0, ['MODEL_PROMOTED'])

    With a running run:

    >>> with flyball.connect("run") as run:  # doctest: +SKIP
    ...     done = run.publish("ROLLBACK_REQUESTED", {"model": model, "reason": "odd play"}, config_key="hex7_2p")
    ...     for event in run.subscribe("MODEL_*", after=done.position, seconds=60):
    ...         print(event.recordedtime, event.data.event_name)
    """
    location = locate_run(run, config_file)
    if wait:
        _await_start(location, wait)
    return Connection(location, timeout)


def connect_async(
    run: str | Path = "run", *, config_file: str | Path | None = None, timeout: float = 10.0
) -> AsyncConnection:
    """Connect to a run from a program with an event loop.

    Use it as ``async with connect_async("run") as run``. Await ``publish``, ``state`` and ``status``. Iterate over
    ``subscribe`` and ``journal`` by ``async for``. Raises the errors of ``connect``.
    """
    return AsyncConnection(locate_run(run, config_file), timeout)
