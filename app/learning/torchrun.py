"""Trainings by several processes of this machine, started by PyTorch's ``torchrun`` (ADR-044).

What they compute travels in a pickle, as between the processes of ``multiprocessing``: in a folder that only its owner
can read, to a program that this one starts. Ranks find each other by files there, and talk over the loopback device.
"""

import pickle
import socket
import sys
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import torch

from app.config import Compute
from app.core import FlyballError
from app.engine import child_environment, python_module
from app.engine.guard import run_guarded
from app.learning.devices import require

R = TypeVar("R")

RESTARTS: Final = 3
"""Deaths of ranks after which a training is given up."""

WORK, OUTCOME = "work.pickle", "outcome.pickle"
EPOCH: Final = "flyball epoch "
"""What a line of rank 0's stdout begins with when it reports an epoch."""


class ProcessesLost(FlyballError):
    """The processes of a training died too often."""


def together(work: Callable[..., R], compute: Compute, *, report: Callable[[int, Any], None]) -> R:
    """Return ``work(compute=…, report=…)``, or have ``compute.processes`` do it together.

    Each of several processes calls it with its own device, and with ``ranks``. The result is rank 0's. What they raise
    is raised here, as ``RankFailed`` if it is no ``FlyballError``. When a rank dies, all begin again, so ``work`` must
    depend on its arguments alone; it and its result are pickled. ``report`` receives each epoch's number and metrics
    once. Raises ``ProcessesLost`` or ``MissingDevice``.
    """
    if compute.processes == 1:
        return work(compute=compute, report=report)
    require(compute.device, compute.processes)
    reported = 0

    def on_line(line: str) -> None:
        nonlocal reported
        if not line.startswith(EPOCH):
            print(line, file=sys.stderr)  # noqa: T201 - what torchrun prints, for the daemon's log
            return
        epoch, metrics = pickle.loads(b64decode(line.removeprefix(EPOCH)))  # noqa: S301 - by our own process
        if epoch > reported:  # after a restart, epochs come again
            reported = epoch
            report(epoch, metrics)

    with TemporaryDirectory(prefix="flyball-training-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / WORK).write_bytes(pickle.dumps((work, compute)))
        ended = run_guarded(_command(folder, compute.processes), ".", _environment(), on_line, asked=True)
        outcome = folder / OUTCOME
        if not outcome.exists():
            raise ProcessesLost(
                f"A training by {compute.processes} processes was given up after {RESTARTS} restarts: torchrun "
                f"{ended.described}",
                hint="The base model stands. A SIGKILL may be a lack of memory (dmesg): train with fewer processes.",
            )
        result = pickle.loads(outcome.read_bytes())  # noqa: S301 - by our own process
    if isinstance(result, FlyballError):
        raise result
    return result  # type: ignore[no-any-return]  # a pickle has no type


def _command(folder: Path, processes: int) -> tuple[str, ...]:
    options = {
        "nnodes": 1,
        "nproc-per-node": processes,
        "max-restarts": RESTARTS,
        # By a file, because the store of ``--standalone`` listens on all of the machine's addresses.
        "rdzv-backend": "c10d",
        "rdzv-conf": "store_type=file",
        "rdzv-endpoint": folder / "rendezvous",
        "rdzv-id": "training",
        "log-dir": folder / "logs",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    return python_module("torch.distributed.run", *words, "--module", "app.learning.rank_process", str(folder))


def _environment() -> dict[str, str]:
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    return child_environment(torch.get_num_threads()) | {
        "PYTHONSAFEPATH": "1",  # as ``python_module`` has it, for the commands that torchrun makes
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # it would listen on all addresses
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
    }
