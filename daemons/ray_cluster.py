"""The Ray cluster of one machine that ``flyball up`` starts.

The command is ``python -m flyball.daemons.ray_cluster FOLDER CPUS MEGABYTES``.

It listens on the loopback device only, and asks for a token that the run's owner alone can read. It ends with this
process, however that ends. CPUS is 0 for all of the machine's.
"""

import asyncio
import os
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from flyball.app.config import Deployment, RunFolder
from flyball.app.engine import python_module
from flyball.app.engine.ray_engine import NAMESPACE, NoRay, import_ray
from flyball.daemons.supervisor import end_with_stdin

IDLE_SECONDS = 600
"""Seconds that a process waits for its next job. Each daemon's jobs have processes of their own. After one second,
Ray's own limit, one daemon's processes would end in favour of another's, and import PyTorch again and again."""

LOOPBACK = "127.0.0.1"
START_SECONDS = 120.0

NICE = 5
"""Niceness of jobs, as with local processes. Ray's own, 15, starves them on a machine that does anything else."""


def is_own_cluster(deployment: Deployment) -> bool:
    """Return whether ``flyball up`` starts a cluster."""
    return deployment.engine == "ray" and deployment.ray.address is None


def cluster_command(folder: RunFolder, deployment: Deployment) -> tuple[str, ...]:
    """Return the command that runs a run's own cluster."""
    size = (str(deployment.ray.cpus or 0), str(deployment.ray.object_store_megabytes))
    return python_module("flyball.daemons.ray_cluster", str(folder.path.absolute()), *size)


def ray_environment(folder: RunFolder) -> Mapping[str, str]:
    """Return the environment variables for the run's token.

    With these variables the cluster asks for the token, and clients show it. The token is made if it is missing.
    """
    if not folder.ray_token.exists():
        folder.ray_token.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder.ray_token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder.ray_token.absolute()),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux, too, it keeps Ray to the loopback device
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": str(NICE),
    }


async def announced_address(folder: RunFolder) -> str:
    """Return the address of the folder's cluster, once it is up.

    ``flyball up`` starts the cluster. Raises ``NoRay`` when that takes too long.
    """
    try:
        async with asyncio.timeout(START_SECONDS):
            while not folder.ray_address.exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise NoRay(
            f"No Ray cluster was started in {folder.path}.",
            hint="Set deployment.ray.address to a cluster's, or start the daemons by `flyball up`.",
        ) from None
    return folder.ray_address.read_text()


def main(path: str, cpus: str, megabytes: str) -> None:
    """Run the cluster until SIGTERM, or until stdin closes, with its address in the run folder."""
    end_with_stdin()
    folder = RunFolder(Path(path))
    folder.ray_address.unlink(missing_ok=True)
    os.environ.update(ray_environment(folder))  # first: Ray reads it when it is imported
    ray = import_ray()
    stop = threading.Event()
    with tempfile.TemporaryDirectory(prefix="flyball-ray-") as scratch:  # a run folder's path is too long for sockets
        ray.init(
            _node_ip_address=LOOPBACK,
            _temp_dir=scratch,
            num_cpus=int(cpus) or None,
            object_store_memory=int(megabytes) << 20,
            include_dashboard=False,
            log_to_driver=False,
            namespace=NAMESPACE,
            _system_config={"idle_worker_killing_time_threshold_ms": 1000 * IDLE_SECONDS},
        )
        for number in (signal.SIGTERM, signal.SIGINT):  # after Ray's own handlers
            signal.signal(number, lambda *_: stop.set())
        written = folder.ray_address.with_suffix(".new")
        written.write_text(ray.get_runtime_context().gcs_address)
        written.replace(folder.ray_address)
        stop.wait()
        folder.ray_address.unlink(missing_ok=True)
        ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
