"""The Ray cluster of one machine that ``flyball up`` starts: ``python -m daemons.ray_cluster FOLDER CPUS MEGABYTES``.

It listens on the loopback device only, and asks for a token that the run's owner alone can read. It ends with this
process, however that ends. CPUS is 0 for all of the machine's.
"""

import os
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from app.config import RunFolder
from app.engine.ray_engine import NAMESPACE, import_ray
from daemons.supervisor import end_with_stdin

LOOPBACK = "127.0.0.1"


def ray_environment(folder: RunFolder) -> Mapping[str, str]:
    """Return the variables with which the cluster asks for the run's token, and others show it; make the token."""
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
    }


def main(path: str, cpus: str, megabytes: str) -> None:
    """Run the cluster until SIGTERM, or until stdin closes; write its address into the run folder."""
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
