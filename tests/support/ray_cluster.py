"""A Ray cluster of two cores for tests."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flyball.app.config import RunFolder
from flyball.daemons.ray_cluster import ray_environment

START_SECONDS = 90


@contextmanager
def ray_cluster(path: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """Yield the cluster's address and process. Processes that connect to it need ``ray_environment``."""
    folder = RunFolder(path)
    environment = {**os.environ, **ray_environment(folder)}
    command = (sys.executable, "-m", "flyball.daemons.ray_cluster", str(path), "2", "100")
    with (
        (path / "ray.stderr").open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors, env=environment) as process,
    ):
        end = time.monotonic() + START_SECONDS
        while not folder.ray_address.exists():
            assert process.poll() is None, (path / "ray.stderr").read_text()
            assert time.monotonic() < end, "Ray did not start"
            time.sleep(0.1)
        yield folder.ray_address.read_text(), process
        process.terminate()
        process.wait(30)  # before its stdin closes, because that would end it at once
