"""Run folders of earlier versions, which every later version must continue.

Each is a small real run, packed: settings, journal, saved state, outboxes and the store, named for the commit that made
it. Before a release, keep a folder of its version with::

    python tests/support/old_runs.py
"""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from running_loop import BRISK, running_loop

FOLDER = Path(__file__).parents[1] / "replay" / "old_runs"
KEPT = ("flyball.toml", "journal.sqlite", "outbox", "state", "store")
"""Files that a start makes again."""

LOOPS = 2
SMALL = BRISK.replace("[games.tic_tac_toe_2p]", "[games.tic_tac_toe_2p]\nnetwork = { hidden = [8] }", 1)
"""Models of a few kilobytes."""


def unpack(name: str, into: Path) -> Path:
    """Unpack the run folder of the version ``name``, and return it."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(into, filter="data")
    return into / "run"


def record(name: str) -> Path:
    """Run all daemons until some loops have closed, and pack the folder."""
    packed = FOLDER / f"{name}.tar.xz"
    packed.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with running_loop(run, SMALL) as loop:
            loop.wait_for_loops(LOOPS, seconds=900)
        with tarfile.open(packed, "w:xz") as archive:
            for kept in KEPT:
                archive.add(run / kept, f"run/{kept}", filter=_essential)
    return packed


def _essential(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, "", ""
    return None if entry.name.endswith(".lock") else entry


if __name__ == "__main__":
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    sys.stdout.write(f"{record(commit)}\n")
