"""The program of a training's ranks, which ``torchrun`` starts: ``python -m app.learning.rank_process FOLDER``."""

import os
import pickle
import shutil
import sys
import threading
from base64 import b64encode
from pathlib import Path

import torch
from torch import distributed

from app.config import Compute
from app.core import FlyballError, located
from app.learning.devices import resolve
from app.learning.ranks import PeerLost, RankFailed, Ranks
from app.learning.torchrun import EPOCH, OUTCOME, WORK


def main() -> None:
    """Do this rank's part of the work in a folder; write the result, or whatever is raised."""
    folder = Path(sys.argv[1])
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a user's network prints goes to stderr, because otherwise it would mix with the reports
    if (folder / OUTCOME).exists():
        return  # a rank failed, and torchrun has started all again
    work, compute = pickle.loads((folder / WORK).read_bytes())  # noqa: S301 - by the process that started this one
    ranks = Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    compute = own_device(compute, ranks.rank)
    _join(folder, compute, ranks)

    def report(epoch: int, metrics: object) -> None:
        if ranks.rank == 0:
            print(EPOCH + b64encode(pickle.dumps((epoch, metrics))).decode(), file=lines, flush=True)

    try:
        outcome = work(compute=compute, ranks=ranks, report=report)
    except PeerLost:
        raise
    except FlyballError as error:  # most often all ranks raise it, because they know the same
        _write(folder, ranks, error)
        return
    except Exception as error:
        _write(folder, ranks, _described(error, ranks))
        raise  # torchrun then ends the other ranks, which may wait for this one
    if ranks.rank == 0:
        _write(folder, ranks, outcome)
    distributed.destroy_process_group()


def own_device(compute: Compute, rank: int) -> Compute:
    """Return a rank's device: the GPUs from the named one on, or the CPU for all."""
    device = resolve(compute.device)
    own = f"cuda:{(device.index or 0) + rank}" if device.type == "cuda" else "cpu"
    return compute.replace(device=own, processes=1)


def _join(folder: Path, compute: Compute, ranks: Ranks) -> None:
    device = resolve(compute.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    meeting = folder / f"group-{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{meeting}",
        rank=ranks.rank,
        world_size=ranks.size,
    )


def _described(error: Exception, ranks: Ranks) -> RankFailed:
    return RankFailed(
        f"{type(error).__name__}: {located(error)} (process {ranks.rank} of {ranks.size})",
        hint="The base model stands. In a run, logs/training.stderr has the traceback.",
    )


def _write(folder: Path, ranks: Ranks, outcome: object) -> None:
    part = folder / f"outcome-{ranks.rank}"
    part.write_bytes(pickle.dumps(outcome))
    part.replace(folder / OUTCOME)


def _end_with_parent(folder: Path) -> None:
    """End when stdin does, and remove the folder, because whoever wanted the result is dead.

    torchrun gives each rank a session of its own, so the guard that kills torchrun does not reach it.
    """
    os.read(0, 1)  # not by sys.stdin, whose lock would be held when the interpreter ends
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)  # sys.exit would end this thread only


if __name__ == "__main__":
    main()
