"""Fixtures and hooks of all tests."""

import atexit
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from postgres_server import new_schema, postgres_server
from profiles import QUICK, THOROUGH
from ray_cluster import ray_cluster
from s3_server import CREDENTIALS, new_bucket, s3_server
from xdist.scheduler import LoadFileScheduling

from flyball.app.config import RunFolder
from flyball.app.config.store_address import StoreAddress
from flyball.app.events import Event, Payload, originate
from flyball.app.events.envelope import EPOCH
from flyball.daemons.ray_cluster import ray_environment

# One thread a process: torch's threads fight over busy cores, and jobs in this process get many times slower.
os.environ["OMP_NUM_THREADS"] = "1"

# Solved positions are kept in the user's cache folder, so tests use one of their own. All workers share it.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["XDG_CACHE_HOME"] = mkdtemp(prefix="flyball-tests-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# Hundreds of processes import the same modules, so bytecode is kept even where the environment forbids it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests in the background of a shell ignore Ctrl-C, and so would every command that they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine would break deadlines without a fault in the code. CI repeats its examples, so that what fails there is
# the change; other runs draw new ones.
for profile, examples in (("quick", QUICK), ("thorough", THOROUGH)):
    settings.register_profile(
        profile,
        max_examples=examples,
        deadline=None,
        derandomize="CI" in os.environ,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("quick")

SYSTEM = "tests/system/"


class OneLoopAtATime(LoadFileScheduling):
    """Distribute whole files, and all of ``tests/system`` to one worker.

    Other files go to the next free worker, as with ``--dist loadfile``. Files of ``tests/system`` run loops of eleven
    daemons. Two loops at once would take turns on two cores, and wait twice as long.
    """

    def _split_scope(self, nodeid: str) -> str:
        return SYSTEM if nodeid.startswith(SYSTEM) else super()._split_scope(nodeid)


@pytest.fixture(scope="session")
def own_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a Ray cluster of two cores; yield its address and process.

    This process may connect to it. There is one cluster for all tests, because Ray reads its environment once, when it
    is imported.
    """
    if find_spec("ray") is None:
        pytest.skip("needs flyball[ray]")
    assert "ray" not in sys.modules
    path = tmp_path_factory.mktemp("ray")
    with pytest.MonkeyPatch.context() as patch, ray_cluster(path) as running:
        for name, value in ray_environment(RunFolder(path)).items():
            patch.setenv(name, value)
        yield running
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Run an S3-compatible server; yield its URL.

    This process has the server's credentials.
    """
    with pytest.MonkeyPatch.context() as patch, s3_server() as endpoint:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield endpoint


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Run a PostgreSQL server; yield the URL of its database."""
    with postgres_server() as server:
        yield server.url


@pytest.fixture
def database(postgres: str) -> str:
    """Return the URL of an empty schema in a PostgreSQL database."""
    return new_schema(postgres)


@pytest.fixture
def bucket(s3: str) -> StoreAddress:
    """Return the address of a store in a new bucket."""
    return new_bucket(s3)


def pytest_configure(config: pytest.Config) -> None:
    """Let the workers compile each kernel once."""
    if hasattr(config, "workerinput"):
        from kernel_turns import compile_in_turns

        compile_in_turns(Path(os.environ["XDG_CACHE_HOME"]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneLoopAtATime | None:
    """Schedule for ``--dist loadfile``; leave other modes as they are."""
    return OneLoopAtATime(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the loops, which take longest.

    Meanwhile the other worker does everything else.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(SYSTEM))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of a GPU where PyTorch finds none."""
    if item.get_closest_marker("gpu"):
        from flyball.app.learning.devices import missing_device

        if reason := missing_device("cuda"):
            pytest.skip(reason)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Restore the logging that a test configures.

    A command that runs in this process redirects all logs into its own file.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


Recorder = Callable[..., Event[Payload]]


@pytest.fixture
def record() -> Recorder:
    """Return a function that records payloads, one second apart by default.

    Its signature is ``record(payload, subject, at=seconds)``.
    """
    sequence = count(1)

    def recorded(data: Payload, subject: str | None = None, at: float | None = None) -> Event[Payload]:
        position = next(sequence)
        seconds = position if at is None else at
        time = EPOCH + timedelta(seconds=seconds)
        envelope = originate(data, event_id=f"event-{position}", time=time, subject=subject)
        return Event(envelope, position, int(seconds * 1e6), "broker@laptop")

    return recorded
