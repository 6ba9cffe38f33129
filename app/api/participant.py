"""Participants in Python: an iterator over a run's requests."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread, current_thread, main_thread
from types import TracebackType
from typing import Any, Self
from weakref import finalize

import structlog

from flyball.app.api import stderr_logger
from flyball.app.api.participation import HeldName, first_error, host_daemons, kinds_of, relay_jobs
from flyball.app.api.runs import RunLocation, locate_run
from flyball.app.engine.relay import RelayEngine
from flyball.app.participation.requests import Request
from flyball.app.participation.tasks import TaskKind
from flyball.app.telemetry import configure
from flyball.daemons.run_folder import prepare


class HostThread:
    """The thread of a participant that hosts its daemons, in an event loop of its own.

    Attributes:
        engine: hands the jobs out.
    """

    def __init__(self, location: RunLocation, kinds: Sequence[TaskKind], name: str | None) -> None:
        prepare(location.folder)
        loaded = location.load()
        self._held = HeldName(loaded, location.folder.path / "participants", name)
        self._location, self._kinds = location, kinds
        self._error: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self.engine = RelayEngine()
        if structlog.get_config()["logger_factory"] is stderr_logger:  # otherwise the program has its own logs
            log = location.folder.log(f"participant@{self._held.name}")
            level = loaded.deployment.log_level
            configure("participant", self._held.name, log, level, echo=False, whole_process=False)
        self._thread = Thread(target=self._run, name="flyball participant", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._host())
            except BaseException as error:  # noqa: BLE001 - the participant's own thread raises it
                self._error = first_error(error)
                structlog.get_logger("participant").error("participant failed", error=str(self._error))

    async def _host(self) -> None:
        hosting = host_daemons(self._location, self._kinds, self.engine, self._stop, name=self._held.name, say=_say)
        await relay_jobs(hosting, self.engine, self._stop)

    def stop(self) -> None:
        """Ask for the end: running jobs get their time, and no others are handed out."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stop.set)

    def end(self) -> None:
        """Stop, and wait for the end. A request without an answer stays to be done. Idempotent."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(partial(self.engine.withdraw, taken=True))
        self.stop()
        if self._thread is not current_thread():
            self._thread.join()
        self._held.close()

    def check(self) -> None:
        """Raise the error that ended it, if there is one."""
        if self._error is not None:
            raise self._error


class Participant:
    """Iterates over a run's requests, until SIGTERM or ``close``. See ``participate``."""

    def __init__(self, location: RunLocation, kinds: Sequence[TaskKind], name: str | None = None) -> None:
        self._host_thread = HostThread(location, kinds, name)
        self._request: Request | None = None
        self._closing = finalize(self, self._host_thread.end)  # also when the loop over it is left
        self._previous: Any = None
        if current_thread() is main_thread():
            stop = self._host_thread.stop  # not a method of this object, which the handler would keep alive
            self._previous = signal.signal(signal.SIGTERM, lambda *_: stop())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Request:
        if self._request is not None and not self._request.is_answered:
            self._request.fail("error", "The participant went on without an answer.")
        job = self._host_thread.engine.take()
        if job is None:
            self.close()
            self._host_thread.check()
            raise StopIteration
        self._request = request = Request(job)
        return request

    def close(self) -> None:
        """Stop taking part. A request without an answer stays to be done. Idempotent."""
        self._closing()
        if self._previous is not None and current_thread() is main_thread():
            signal.signal(signal.SIGTERM, self._previous)
            self._previous = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def participate(
    run: str | Path, *kinds: str, name: str | None = None, config_file: str | Path | None = None
) -> Participant:
    """Take part in a run whose backend is external: iterate over its requests, and answer each.

    Args:
        run: the run folder. On another machine than the broker's, a folder whose ``flyball.toml`` has the broker's
            address and this machine's key.
        kinds: the tasks to do: selfplay (or play), inspection, training, evaluation, distribution.
        name: this participant's name in the run; unset: the first free one of NODE.1, NODE.2 and so on.
        config_file: the settings file of the run, if it is not the folder's ``flyball.toml``.

    The iteration waits for the broker and for requests. It ends after SIGTERM, or ``close``. Then an answer counts that
    comes within ``deployment.drain_seconds``; a request without an answer stays to be done. Raises ``BadUsage``,
    ``NameTaken``, ``BadSettings`` for a run that does its work itself, and the errors of the connection.

    >>> for request in flyball.participate("run", "training"):  # doctest: +SKIP
    ...     with request:  # an exception in the block is the request's failure
    ...         model, loss = train(request["base_model"], request["shards"], request["learning_rate"])
    ...         request.succeed(model=model, metrics={"loss": loss})

    A participant may be started before its run:

    >>> participant = flyball.participate("run", "training")
    >>> participant.close()
    """
    return Participant(locate_run(run, config_file), kinds_of(kinds), name)
