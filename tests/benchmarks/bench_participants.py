"""Measure one broker with the participants of 36 machines and 12 configurations of backend ``external``.

    python tests/benchmarks/bench_participants.py [SECONDS]

The participants' work is to wait (``sleeping_loop.py``): 20 s for a shard, 30 s for a training, 10 s for a batch of an
evaluation. Each serves all three, so that there are 108 daemons beside those of ``up``.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from killing import start
from running_loop import running_loop

from flyball.app.events import Event, ModelPromoted, NodeLost, SelfplayComplete
from flyball.app.journal import SqliteJournalReader, history

MACHINES, CONFIGS = 36, 12
SCRIPT = Path(__file__).parents[1] / "support" / "sleeping_loop.py"
KEYS = [f"game{number}_2p" for number in range(1, CONFIGS + 1)]
SETTINGS = f"configs = {KEYS}\n" + "".join(
    f'[games.{key}]\nbackend = "external"\ngame = "waiting"\nplayers = 2\nrows_per_training = 20000\n' for key in KEYS
)


def say(text: str) -> None:
    """Write a line to stdout."""
    sys.stdout.write(f"{text}\n")


def processor_seconds(pid: int) -> dict[str, float]:
    """Return the processor time of a run's daemons, by name in the list of processes."""
    return {" ".join(child.cmdline()[-4:]): sum(child.cpu_times()[:2]) for child in psutil.Process(pid).children(True)}


def quantiles(name: str, seconds: Sequence[float]) -> None:
    """Print the median and the 99th percentile in milliseconds."""
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    say(f"{name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms (n={len(seconds)})")


def report(events: Sequence[Event[Any]], seconds: float) -> None:
    """Print rates and latencies."""
    done = [event for event in events if isinstance(event.data, SelfplayComplete)]
    say(f"{len(events) / seconds:.1f} events/s; {len(done)} shards, a rate of {len(done) / seconds:.2f}/s")
    say(f"promotions {sum(isinstance(event.data, ModelPromoted) for event in events)}")
    say(f"participants lost {sum(isinstance(event.data, NodeLost) for event in events)}")
    quantiles(
        "result published until recorded", [(one.recordedtime - one.envelope.time).total_seconds() for one in done]
    )


def main(seconds: float) -> None:
    """Run for a time, and print what was seen in it."""
    with tempfile.TemporaryDirectory() as name, running_loop(Path(name), SETTINGS) as loop:
        os.chdir(name)
        loop.wait_for("a broker", loop.events)
        pids = [start(str(SCRIPT)) for _ in range(MACHINES)]
        loop.wait_for("first models", lambda: len(loop.events(ModelPromoted)) >= CONFIGS)
        before, position, size = processor_seconds(loop.process.pid), loop.head(), journal_bytes(loop.folder)
        time.sleep(seconds)
        after, grown = processor_seconds(loop.process.pid), journal_bytes(loop.folder) - size
        with closing(SqliteJournalReader(loop.folder / "journal.sqlite")) as journal:
            events = list(history(journal, after=position))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        report(events, seconds)
        say(f"journal {grown / len(events):,.0f} bytes an event, {grown / seconds * 86400 / 1e9:.2f} GB a day")
        for daemon, used in sorted(after.items()):
            say(f"{daemon}: {(used - before.get(daemon, 0.0)) / seconds:.1%} of a core")


def journal_bytes(folder: Path) -> int:
    """Return the size of the journal's files."""
    return sum(path.stat().st_size for path in folder.glob("journal.sqlite*"))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 180.0)
