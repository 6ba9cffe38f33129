"""Processor time and memory of a start, with and without the fork server.

``python tests/benchmarks/bench_start.py`` starts ``flyball up`` of a laptop's run in both ways, one after the other. It
shows the processor seconds (user and system, all processes) until all daemons are ready; the memory of all processes 30
seconds later, as the sum of proportional set sizes; and the processor seconds of ``flyball status``, the least of five.
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import psutil

sys.path.append(str(Path(__file__).parents[1] / "support"))

from running_loop import FLYBALL, STARTED, RunningLoop, running_loop

LATER_SECONDS = 30


def processes(loop: RunningLoop) -> list[psutil.Process]:
    """Return all processes of a run."""
    first = psutil.Process(loop.process.pid)
    return [first, *first.children(recursive=True)]


def processor_seconds(loop: RunningLoop) -> float:
    """Return the time of a run's processes, including those that have ended."""
    seconds = 0.0
    for process in processes(loop):
        with suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:4])
    return seconds


def memory_mb(loop: RunningLoop) -> float:
    """Return the sum of the proportional set sizes."""
    total = 0
    for process in processes(loop):
        with suppress(OSError):
            _, _, rest = Path(f"/proc/{process.pid}/smaps_rollup").read_text().partition("\nPss:")
            total += int(rest.split()[0])
    return total / 1000


def status_seconds(loop: RunningLoop) -> float:
    """Return the least processor time of five commands."""
    seconds = []
    for _ in range(5):
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run([FLYBALL, "--run", str(loop.folder), "status"], stdout=subprocess.DEVNULL, check=True)
        after = getrusage(RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def measured(*, forked: bool) -> str:
    """Return the figures of a start."""
    settings = f"[deployment]\nfork_server = {str(forked).lower()}\n[deployment.dashboard]\nport = 0\n"
    with tempfile.TemporaryDirectory() as folder, running_loop(Path(folder) / "run", settings, dashboard=True) as loop:
        while not all(loop.ready(daemon) for daemon in STARTED):
            time.sleep(0.05)
        seconds = processor_seconds(loop)
        time.sleep(LATER_SECONDS)
        return f"{seconds:19.1f} {len(processes(loop)):10} {memory_mb(loop):9,.0f} {status_seconds(loop):16.2f}"


if __name__ == "__main__":
    os.environ["NO_COLOR"] = "1"
    print(f"{'':13} processor s, ready  processes  PSS in MB  status, processor s")  # noqa: T201
    for forked in (False, True):
        print(f"{'fork server' if forked else 'each by itself':13} {measured(forked=forked)}", flush=True)  # noqa: T201
