"""Engines of one machine, with long-lived child processes that talk through pipes, or threads of this process."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from flyball.app.core import JsonObject, Report
from flyball.app.engine.port import EngineClosed, JobFailed, trace_context
from flyball.app.engine.programs import Program, child_environment, python_module, start_program
from flyball.app.engine.worker import LENGTH_BYTES, encode, follow, frame_bytes, perform_here

_STOP_SECONDS = 5.0


class LocalEngine:
    """Runs jobs in child processes.

    A process is started at its first job, and replaced when it dies.

    Args:
        workers: number of processes, and of jobs that run at once.
        threads: threads that numerical libraries use in each process.
        nice: added to the children's niceness, so that the daemons on the same machine stay responsive.
        fork: whether a fork server may fork the children, which then cannot use CUDA.
    """

    def __init__(self, workers: int = 1, threads: int = 1, nice: int = 0, *, fork: bool = True) -> None:
        self._children = [_Child(threads, nice, fork=fork) for _ in range(workers)]
        self._idle: asyncio.LifoQueue[_Child] = asyncio.LifoQueue()  # LIFO: the one used last has modules loaded
        for child in self._children:
            self._idle.put_nowait(child)

    async def capacity(self) -> None:
        """See ``Engine.capacity``."""

    async def run(
        self,
        function: str,
        spec: JsonObject,
        on_progress: Report | None = None,
        deadline_seconds: float | None = None,
    ) -> JsonObject:
        """See ``Engine.run``."""
        child = await self._idle.get()
        try:
            return await child.run(function, spec, on_progress, deadline_seconds)
        finally:
            self._idle.put_nowait(child)

    async def close(self) -> None:
        """See ``Engine.close``."""
        for child in self._children:
            await child.stop()


class _Child:
    """A worker process, started at its first job."""

    def __init__(self, threads: int, nice: int, *, fork: bool) -> None:
        self._environment = child_environment(threads)
        self._nice, self._fork = nice, fork
        self._process: Program | None = None
        self._closed = False

    async def run(
        self, function: str, spec: JsonObject, on_progress: Report | None, deadline_seconds: float | None
    ) -> JsonObject:
        request = frame_bytes({"function": function, "spec": spec, "traceparent": trace_context()})
        process = await self._running_process(function)
        try:
            assert process.stdin is not None
            process.stdin.write(request)
            with suppress(ConnectionError):  # the child died: reading from it shows how
                await process.stdin.drain()
            return await follow(function, lambda: _receive(process), on_progress, deadline_seconds)
        except JobFailed:
            raise
        except BaseException:  # cancelled, lost, too slow, or ``on_progress`` raised: nobody needs the result
            await _end(process)
            raise

    async def stop(self) -> None:
        """Close the process's stdin, at which it ends. The process is killed if it has not ended after 5 seconds."""
        self._closed = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._process.wait()
            await _end(self._process)

    async def _running_process(self, function: str) -> Program:
        if not self._closed and (self._process is None or self._process.returncode is not None):
            # In a session of its own the child gets no Ctrl-C: the parent decides about its jobs.
            command = python_module("flyball.app.engine", str(self._nice))
            self._process = await start_program(command, self._environment, answers=True, fork=self._fork)
        if self._closed or self._process is None:  # perhaps closed while the process was starting
            if self._process is not None:
                await _end(self._process)
            raise EngineClosed.at(function)
        return self._process


async def _receive(process: Program) -> JsonObject:
    assert process.stdout is not None
    try:
        size = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "big")
        frame: JsonObject = json.loads(await process.stdout.readexactly(size))
    except asyncio.IncompleteReadError:
        return {"lost": f"process {process.pid} ended with status {await process.wait()}"}
    return frame


async def _end(process: Program) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


class InlineEngine:
    """Runs jobs in threads, for tests and small runs. A cancelled or lost job runs until its next report."""

    def __init__(self, workers: int = 1) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="job")
        self._slots = asyncio.Semaphore(workers)
        self._running: set[asyncio.Queue[JsonObject]] = set()
        self._closed = False

    async def capacity(self) -> None:
        """See ``Engine.capacity``."""

    async def run(
        self,
        function: str,
        spec: JsonObject,
        on_progress: Report | None = None,
        deadline_seconds: float | None = None,
    ) -> JsonObject:
        """See ``Engine.run``."""
        loop = asyncio.get_running_loop()
        frames: asyncio.Queue[JsonObject] = asyncio.Queue()

        def send(frame: bytes) -> None:
            if frames not in self._running:
                raise SystemExit  # nobody reads the frames any more; in a thread of a pool this ends only the job
            loop.call_soon_threadsafe(frames.put_nowait, json.loads(frame))

        async with self._slots:
            if self._closed:
                raise EngineClosed.at(function)
            self._running.add(frames)
            try:
                self._threads.submit(perform_here, function, encode(spec), send)
                return await follow(function, frames.get, on_progress, deadline_seconds)
            finally:
                self._running.discard(frames)

    async def close(self) -> None:
        """See ``Engine.close``."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for frames in self._running:
            frames.put_nowait({"lost": "the engine was closed"})
