"""Training by several processes of this machine, started by ``torchrun`` (ADR-026).

The work and its result travel in pickles, as between the processes of ``multiprocessing``. They lie in a folder that
only its owner can read, and the program that reads them is started here. Ranks find each other by files in that folder,
and communicate over the loopback device.
"""

import os
import pickle
import re
import socket
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import torch
from torch import distributed

from flyball.app.config import Compute
from flyball.app.core import FlyballError, located
from flyball.app.engine import child_environment, python_module
from flyball.app.engine.guard import CommandEnd, run_guarded
from flyball.app.learning.devices import require, resolve
from flyball.app.learning.ranks import PeerLost, RankFailed, Ranks

R = TypeVar("R")

RESTARTS: Final = 3
"""Deaths of ranks after which a training is given up."""

WORK, OUTCOME = "work.pickle", "outcome.pickle"
EPOCH: Final = "flyball epoch "
"""Prefix of lines on rank 0's stdout that report an epoch."""


class ProcessesLost(FlyballError):
    """The processes of a training died too often."""


def run_on_ranks(work: Callable[..., R], compute: Compute, *, report: Callable[[int, Any], None]) -> R:
    """Run ``work`` in ``compute.processes`` processes; return its result.

    ``work`` is called as ``work(compute=…, report=…)``. With one process, it runs in this one. With several, each calls
    it with its own device, and also with ``ranks``; the result is that of rank 0. An error of a rank is raised here, as
    ``RankFailed`` if it is no ``FlyballError``. When a rank dies, all begin again, so ``work`` must depend on its
    arguments alone. ``work`` and its result are pickled. ``report`` receives each epoch's number and metrics once.
    Raises ``ProcessesLost`` or ``MissingDevice``.
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
        if epoch > reported:  # because restarted ranks report earlier epochs again
            reported = epoch
            report(epoch, metrics)

    with TemporaryDirectory(prefix="flyball-training-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / WORK).write_bytes(pickle.dumps((work, compute)))
        ended = run_guarded(_command(folder, compute.processes), ".", _environment(), on_line, with_stdin=True)
        outcome = folder / OUTCOME
        if not outcome.exists():
            raise ProcessesLost(
                f"A training by {compute.processes} processes was given up after {RESTARTS} restarts: {_cause(ended)}",
                hint="The base model stands. A SIGKILL may be a lack of memory (dmesg): train with fewer processes. In "
                "a run, logs/training.stderr has all that the processes wrote.",
            )
        result = pickle.loads(outcome.read_bytes())  # noqa: S301 - by our own process
    if isinstance(result, FlyballError):
        raise result
    return result  # type: ignore[no-any-return]  # a pickle has no type


def _cause(ended: CommandEnd) -> str:
    """Return how the first rank to fail, or torchrun itself, ended. The source is torchrun's report."""
    first = re.search(r"Root Cause.*?\brank +: (\d+).*?\bexitcode +: (-?\d+)", ended.errors, re.DOTALL)
    if first is None:
        return f"torchrun {ended.description}"
    return f"process {first[1]} {CommandEnd(int(first[2]), '', '').description}"


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
    return python_module("torch.distributed.run", *words, "--module", "flyball.app.learning.rank_process", str(folder))


def _environment() -> dict[str, str]:
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    return child_environment(torch.get_num_threads()) | {
        "PYTHONSAFEPATH": "1",  # for torchrun's children, as ``python_module`` for torchrun
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # because that store listens on all addresses
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
    }


def run_rank(folder: Path) -> None:
    """Run the work as torchrun's rank; write its result or error, nothing if another rank is lost."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a user's network prints goes to stderr, because otherwise it would mix with the reports
    if (folder / OUTCOME).exists():
        return  # a rank failed before; torchrun restarted all
    work, compute = pickle.loads((folder / WORK).read_bytes())  # noqa: S301 - by the process that started this one
    ranks = Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    compute = own_device(compute, ranks.rank)
    _join_group(folder, compute, ranks)

    def report(epoch: int, metrics: object) -> None:
        if ranks.rank == 0:
            print(EPOCH + b64encode(pickle.dumps((epoch, metrics))).decode(), file=lines, flush=True)

    try:
        outcome = work(compute=compute, ranks=ranks, report=report)
    except PeerLost:
        raise
    except FlyballError as error:  # raised by all ranks, because all know the same sums
        _write(folder, ranks, error)
        return
    except Exception as error:
        _write(folder, ranks, _rank_failed(error, ranks))
        raise  # torchrun then ends the other ranks, which may wait for this one
    if ranks.rank == 0:
        _write(folder, ranks, outcome)
    distributed.destroy_process_group()


def own_device(compute: Compute, rank: int) -> Compute:
    """Return ``compute`` with a rank's own device: on GPUs the k-th from the named one on; one CPU for all."""
    device = resolve(compute.device)
    own = f"cuda:{(device.index or 0) + rank}" if device.type == "cuda" else "cpu"
    return compute.replace(device=own, processes=1)


def _join_group(folder: Path, compute: Compute, ranks: Ranks) -> None:
    device = resolve(compute.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    rendezvous = folder / f"group-{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{rendezvous}",
        rank=ranks.rank,
        world_size=ranks.size,
    )


def _rank_failed(error: Exception, ranks: Ranks) -> RankFailed:
    return RankFailed(
        f"{type(error).__name__}: {located(error)} (process {ranks.rank} of {ranks.size})",
        hint="The base model stands. In a run, logs/training.stderr has the traceback.",
    )


def _write(folder: Path, ranks: Ranks, outcome: object) -> None:
    part = folder / f"outcome-{ranks.rank}"
    part.write_bytes(pickle.dumps(outcome))
    part.replace(folder / OUTCOME)
