"""The frames that a job in a worker and its caller exchange.

A frame is a JSON object with one key: ``progress``, ``result``, ``error``, or ``lost`` for a worker that died. In a
pipe, four bytes of length precede it.
"""

import asyncio
import json
import traceback
from collections.abc import Awaitable, Callable
from importlib import import_module

from flyball.app.core import FlyballError, Job, JsonObject, Report, current_name, located
from flyball.app.engine.port import JobFailed, JobTimedOut, WorkerLost

LENGTH_BYTES = 4
_TRACE_ENTRIES = 8


def _job(function: str) -> Job:
    module, _, name = function.partition(":")
    try:
        job = getattr(import_module(current_name(module)), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise FlyballError(
            f"{function!r} names no job ({error}).",
            hint="Write 'package.module:function', importable by the worker.",
        ) from error
    assert callable(job)
    return job  # type: ignore[no-any-return]  # a name in a string has no type


def perform(function: str, spec: JsonObject, send: Callable[[JsonObject], None]) -> None:
    """Run a job and send its frames: any number of ``progress`` frames, then one ``result`` or ``error``."""
    try:
        result = _job(function)(spec, lambda progress: send({"progress": progress}))
        send({"result": result})
    except Exception as error:  # noqa: BLE001  # the boundary: whatever a job raises is reported to its caller
        summary, hint, code = located(error), "In a run, the daemon's log has the traceback.", FlyballError.code
        if isinstance(error, FlyballError):
            summary, hint, code = error.message, error.hint, error.code
        trace = "".join(traceback.format_exception(error, limit=-_TRACE_ENTRIES))
        send({"error": {"kind": type(error).__name__, "summary": summary, "hint": hint, "trace": trace, "code": code}})


def perform_here(function: str, spec: bytes, send: Callable[[bytes], None]) -> None:
    """Run a job as ``perform`` does, but survive a job that exits.

    A job that raises ``SystemExit`` sends a ``lost`` frame. Spec and frames are JSON as between processes, because
    otherwise a job could rely on what only threads share.
    """
    try:
        perform(function, json.loads(spec), lambda frame: send(encode(frame)))
    except SystemExit as error:
        send(encode({"lost": f"it asked to exit with {error.code!r}"}))


async def follow(
    function: str,
    receive: Callable[[], Awaitable[JsonObject]],
    on_progress: Report | None,
    deadline_seconds: float | None = None,
) -> JsonObject:
    """Receive a job's frames until it ends, and return the result. Raises the errors of ``Engine.run``."""
    end = None if deadline_seconds is None else asyncio.get_running_loop().time() + deadline_seconds
    while True:
        try:
            async with asyncio.timeout_at(end):
                frame = await receive()
        except TimeoutError:
            raise JobTimedOut(
                f"{function} was not done within {deadline_seconds:g} s.",
                hint="Give it more time, or less to do.",
            ) from None
        if "progress" not in frame:
            break
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


def encode(frame: JsonObject) -> bytes:
    """Return a frame as JSON. Raises ``ValueError`` for a NaN, and ``TypeError`` for a type that JSON lacks."""
    return json.dumps(frame, allow_nan=False, separators=(",", ":")).encode()


def frame_bytes(frame: JsonObject) -> bytes:
    """Return a frame for a pipe: its length, then its JSON."""
    data = encode(frame)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data
