"""The program of a training's ranks: ``python -m flyball.app.learning.rank_process FOLDER``. ``torchrun`` starts it."""

import os
import shutil
import sys
import threading
import time
from pathlib import Path


def main() -> None:
    """Run one rank until its training ends or its parent dies."""
    folder = Path(sys.argv[1])
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    from flyball.app.learning.torchrun import run_rank  # after the thread, because it imports PyTorch for seconds

    run_rank(folder)


def _end_with_parent(folder: Path) -> None:
    """Remove the folder and exit when stdin closes.

    stdin closes when the process that wants the result dies. torchrun gives each rank a session of its own, so the
    guard that kills torchrun does not reach it.
    """
    os.read(0, 1)  # not by sys.stdin, because its lock would be held when the interpreter ends
    for _ in range(10):  # torchrun may restart a rank, and make its folder again, until it is killed as well
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.1)
    os._exit(1)  # sys.exit would end this thread only


if __name__ == "__main__":
    main()
