"""The child process of ``LocalEngine``: ``python -m app.engine NICE``.

Reads jobs from stdin, writes frames to stdout, each as four bytes of length and JSON. It ends when its stdin
does, even in the middle of a job, so it never outlives a parent that was killed.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from importlib import import_module
from queue import SimpleQueue
from typing import BinaryIO

from app.core import FlyballError
from app.engine.port import Job, JobFailed, JobTimedOut, JsonObject, Report, WorkerLost

# One job in a compute process, reported in frames.
#
# A frame is a JSON object with one key: ``progress``, ``result``, ``error``, or ``lost`` for a worker that died.

_TRACE_ENTRIES = 8


def resolve(function: str) -> Job:
    """Return the job named ``"package.module:name"``. Raises ``FlyballError`` when there is none."""
    module, _, name = function.partition(":")
    try:
        job = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise FlyballError(
            f"{function!r} names no job ({error}).",
            hint="Write 'package.module:function', importable by the worker.",
        ) from error
    assert callable(job)
    return job  # type: ignore[no-any-return]  # a name in a string has no type


def perform(function: str, spec: JsonObject, send: Callable[[JsonObject], None]) -> None:
    """Run a job and send its frames: any number of ``progress``, then one ``result`` or ``error``."""
    try:
        result = resolve(function)(spec, lambda progress: send({"progress": progress}))
        send({"result": result})
    except Exception as error:  # noqa: BLE001  # the boundary: whatever a job raises is reported to its caller
        send({"error": _described(error)})


async def follow(
    function: str,
    receive: Callable[[], Awaitable[JsonObject]],
    on_progress: Report | None,
    deadline_seconds: float | None = None,
) -> JsonObject:
    """Receive a job's frames until it ends; return the result or raise as ``Engine.run`` does."""
    began = asyncio.get_running_loop().time()
    while "progress" in (frame := await _received(function, receive, began, deadline_seconds)):
        if on_progress is not None:
            on_progress(frame["progress"])
    if "error" in frame:
        raise JobFailed(function, **frame["error"])
    if "lost" in frame:
        raise WorkerLost(
            f"The worker of {function} ended before its job did: {frame['lost']}.",
            hint="Try the job again; when it happens often, look for a lack of memory (dmesg).",
        )
    result: JsonObject = frame["result"]
    return result


async def _received(
    function: str, receive: Callable[[], Awaitable[JsonObject]], began: float, deadline_seconds: float | None
) -> JsonObject:
    """Receive one frame. Raises ``JobTimedOut`` when the job's time is over."""
    end = None if deadline_seconds is None else began + deadline_seconds
    try:
        async with asyncio.timeout_at(end):
            return await receive()
    except TimeoutError:
        raise JobTimedOut(
            f"{function} was not done within {deadline_seconds:g} s.",
            hint="Give it more time, or less to do.",
        ) from None


def encode(frame: JsonObject) -> bytes:
    """Return a frame as JSON. Raises ``ValueError`` for a NaN, ``TypeError`` for what JSON does not know."""
    return json.dumps(frame, allow_nan=False, separators=(",", ":")).encode()


def _described(error: Exception) -> JsonObject:
    summary, hint = (error.message, error.hint) if isinstance(error, FlyballError) else (str(error), "")
    trace = "".join(traceback.format_exception(error, limit=-_TRACE_ENTRIES))
    return {"kind": type(error).__name__, "summary": summary, "hint": hint, "trace": trace}


LENGTH_BYTES = 4


def frame_bytes(frame: JsonObject) -> bytes:
    """Return a frame as it goes through the pipe."""
    data = encode(frame)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def main() -> None:
    """Serve jobs until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop, not the terminal
    os.nice(int(sys.argv[1]))
    out = _claim_stdout()
    jobs: SimpleQueue[JsonObject] = SimpleQueue()
    threading.Thread(target=_read_jobs, args=(sys.stdin.buffer, jobs), daemon=True).start()

    def send(frame: JsonObject) -> None:
        out.write(frame_bytes(frame))
        out.flush()

    while True:
        job = jobs.get()
        perform(job["function"], job["spec"], send)


def _claim_stdout() -> BinaryIO:
    # What a job prints must not get between the frames: descriptor 1 becomes stderr.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def _read_jobs(source: BinaryIO, jobs: SimpleQueue[JsonObject]) -> None:
    while len(head := source.read(LENGTH_BYTES)) == LENGTH_BYTES:
        jobs.put(json.loads(source.read(int.from_bytes(head, "big"))))
    os._exit(0)  # sys.exit would end this thread only
