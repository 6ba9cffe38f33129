"""The engine that runs jobs on a Ray cluster (ADR-011). Needs ``flyball[ray]``.

A job is a Ray task that yields its frames. A task whose worker is lost before the first frame came is submitted again;
a job that ends its process at once may then run twice. Later losses are left to ``scatter``, as with every engine.
Specs and frames travel as JSON, so that nothing of ours is unpickled.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from queue import SimpleQueue
from threading import Thread
from typing import Any

from flyball.app.core import FlyballError, JsonObject, Report
from flyball.app.engine.port import TRACEPARENT, EngineClosed, JobFailed, trace_context
from flyball.app.engine.worker import encode, follow, perform_here

NAMESPACE = "flyball"
ANSWER_SECONDS = 5.0
"""Longest wait for a cluster to answer."""
SUBMISSIONS = 3
"""Times that a job is submitted until its first frame comes. Ray may lease a worker that is just ending."""

_EPSILON = 1e-6  # of sums of fractions of a GPU


class NoRay(FlyballError):
    """Ray is not installed, or its cluster cannot be reached."""


class RayEngine:
    """Runs jobs on a Ray cluster.

    As many jobs run at once as the cluster's nodes have room for; the others wait in Ray.

    Args:
        address: HOST:PORT of the cluster.
        resources: what one job occupies, by Ray's names: CPU, GPU and custom ones.

    Raises:
        NoRay: Ray is missing, or does not answer at this address.
    """

    def __init__(self, address: str, resources: Mapping[str, float]) -> None:
        check_ray()
        self._resources = dict(resources)
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), ANSWER_SECONDS).close()  # Ray itself would try for minutes
            self._ray = import_ray()
            if not self._ray.is_initialized():
                self._ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            raise NoRay(
                f"No Ray cluster answers at {address}: {_first_sentence(error)}.",
                hint="Start it (ray start --head), check deployment.ray.address, and RAY_AUTH_TOKEN_PATH if it asks "
                "for a token.",
            ) from error
        options = {"num_cpus": resources.get("CPU", 0), "num_gpus": resources.get("GPU", 0)}
        tags = {name: amount for name, amount in resources.items() if name not in ("CPU", "GPU")}
        # A function of this module, so that Ray sends its name. A worker on another machine has it installed.
        self._task = self._ray.remote(max_retries=0, num_returns="streaming", resources=tags, **options)(_perform)
        self._running: set[Any] = set()
        self._closed = False

    async def capacity(self) -> int:
        """Return how many jobs the cluster can run at once. Other work on its nodes is not counted."""
        resources = await asyncio.to_thread(self._ray.cluster_resources)
        return min(int(resources.get(name, 0.0) / amount + _EPSILON) for name, amount in self._resources.items())

    async def run(
        self,
        function: str,
        spec: JsonObject,
        on_progress: Report | None = None,
        deadline_seconds: float | None = None,
    ) -> JsonObject:
        """See ``Engine.run``."""
        task = (function, encode(spec), [path for path in sys.path if path], trace_context())
        first: JsonObject = {}
        for _ in range(SUBMISSIONS):
            if self._closed:
                raise EngineClosed.at(function)
            frames = self._task.remote(*task)
            self._running.add(frames)
            try:
                first = await self._receive(frames)
                if "started" in first:
                    return await follow(function, partial(self._receive, frames), on_progress, deadline_seconds)
                self._cancel(frames)  # in case the frame alone is lost
            except JobFailed:
                raise
            except BaseException:  # cancelled, lost, too slow, or ``on_progress`` raised: nobody needs the result
                self._cancel(frames)
                raise
            finally:
                self._running.discard(frames)
        return await follow(function, lambda: asyncio.sleep(0, first), on_progress)  # raises WorkerLost

    async def close(self) -> None:
        """See ``Engine.close``. The cluster goes on."""
        self._closed = True
        for frames in [*self._running]:
            self._cancel(frames)

    async def _receive(self, frames: Any) -> JsonObject:
        """Return a task's next frame; ``lost`` when there is none."""
        try:
            frame: JsonObject = json.loads(await (await anext(frames)))
        except StopAsyncIteration:
            return {"lost": "its task ended"}
        except self._ray.exceptions.RayError as error:
            return {"lost": "the engine was closed" if self._closed else _first_sentence(error)}
        return frame

    def _cancel(self, frames: Any) -> None:
        self._ray.cancel(frames, force=True)


def check_ray() -> None:
    """Raise ``NoRay`` if the package is not installed, without importing it."""
    try:
        package = find_spec("ray")
    except ValueError:  # raised for a module that is marked as missing
        package = None
    if package is None:
        raise NoRay("Engine 'ray' needs the package ray.", hint="pip install 'flyball[ray]'")


def import_ray() -> Any:
    """Return the package ``ray``. Raises ``NoRay`` if it is not installed."""
    check_ray()
    import ray
    import ray.exceptions

    return ray


def _first_sentence(error: Exception) -> str:
    """Return an error's first sentence, because Ray's errors have pages."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.split(". ")[0].rstrip(".")


def _perform(function: str, spec: bytes, paths: Sequence[str], traceparent: str) -> Iterator[bytes]:
    """Run a job in a Ray worker; yield ``started`` and its frames.

    The worker finds modules where the caller does, as far as its machine has the same folders.
    """
    sys.path.extend(path for path in paths if path not in sys.path)
    os.environ[TRACEPARENT] = traceparent
    frames: SimpleQueue[bytes | None] = SimpleQueue()

    def perform() -> None:
        try:
            perform_here(function, spec, frames.put)
        finally:
            frames.put(None)

    yield encode({"started": True})
    # A thread, because frames have to go while the job runs, and only this function can yield them.
    Thread(target=perform, name="job", daemon=True).start()
    while (frame := frames.get()) is not None:
        yield frame
