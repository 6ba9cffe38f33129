"""Cost of shipping a journal, and what a dead disk would lose (ADR-042).

A generated run's events are recorded at a steady rate, while ``flyball journal ship`` copies them to a folder. Now and
then both are halted, as a dead disk would, and what was recorded is compared with what is there. Run with
``pytest tests/benchmarks/bench_shipping.py -m benchmark -s``.
"""

import random
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from generated_run import generated, laptop

from flyball.app.engine import python_module
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import Frame, frame_of, seal
from flyball.app.journal import SqliteJournal
from flyball.app.journal.shipped_parts import parse_parts
from flyball.app.store.named import open_objects
from flyball.daemons.clock import MICROSECOND, SystemClock

pytestmark = pytest.mark.benchmark

SECONDS = 120.0
RATES = (0, 5, 50, 500)
"""Events a second; the disk's fsync may allow fewer."""


class Recorded(NamedTuple):
    """An event's position, and when it was recorded by the monotonic clock."""

    position: int
    at_seconds: float


class Death(NamedTuple):
    """The number of events that a death of the disk loses, and how long ago the oldest of them was recorded."""

    events: int
    seconds: float


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rate", RATES)
def test_cost_and_loss(rate: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, disk = tmp_path / "run", tmp_path / "disk"
    run.mkdir()
    disk.mkdir()
    (run / "flyball.toml").write_text(f'[deployment.journal]\nship = "{disk}"\n')
    events, rng, clock = generated(10**6, settings=laptop(), seed=3), random.Random(rate), SystemClock()
    deaths = list[Death]()
    command = python_module("flyball.app.cli", "--run", str(run), "journal", "ship", "--supervised")
    with (
        closing(SqliteJournal(run / "journal.sqlite")) as journal,
        subprocess.Popen(command, stdin=subprocess.PIPE) as process,
    ):
        shipper, recorded, raw_bytes = psutil.Process(process.pid), list[Recorded](), 0

        def record() -> int:
            envelope = next(events).envelope
            frame = Frame.parse(frame_of([envelope], producer="a", epoch=1, base=journal.head))
            now_us = (clock.now() - EPOCH) // MICROSECOND
            sealed = seal(frame, first=journal.head + 1, recorded_us=now_us, source="a@b")
            journal.append([sealed])
            journal.maintain()
            recorded.append(Recorded(sealed.last, time.monotonic()))
            return len(sealed.raw)

        record()
        while not list(disk.rglob("*-*-*-*-*")):
            time.sleep(0.1)
        began, before, due = time.monotonic(), shipper.cpu_times(), time.monotonic() + rng.uniform(1, 3)
        first = journal.head
        while (now := time.monotonic()) < began + SECONDS:
            if rate and (now - began) * rate >= journal.head - first:
                raw_bytes += record()
            else:
                time.sleep(0.002)
            if now >= due:
                due = now + rng.uniform(1, 3)
                shipper.suspend()
                there = max(part.last for part in parse_parts(open_objects(str(disk), "").names("journal")))
                recorded = [event for event in recorded if event.position > there]
                oldest = time.monotonic() - recorded[0].at_seconds if recorded else 0.0
                deaths.append(Death(len(recorded), oldest))
                shipper.resume()
        after = shipper.cpu_times()
        count, resident = journal.head - first, shipper.memory_info().rss
        process.stdin.close()
        process.wait()
    parts = [path for path in disk.rglob("*") if path.is_file()]
    spent = after.user + after.system - before.user - before.system
    late = sorted(death.seconds for death in deaths)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{rate} events/s: {spent / SECONDS:.2%} of a core, {resident / 1e6:.0f} MB; {count} events of "
            f"{raw_bytes / max(1, count):.0f} bytes, {sum(p.stat().st_size for p in parts) / max(1, count):.0f} there, "
            f"{len(parts)} objects; {len(late)} deaths: oldest lost event {late[len(late) // 2]:.2f} s (median), "
            f"{late[-1]:.2f} s (most), {max(death.events for death in deaths)} events at most\n"
        )
    assert late[-1] < 60
