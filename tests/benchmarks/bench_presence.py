"""Growth of the journal by signs of life, ticks and roll calls.

It is that of one day of 36 nodes, with earlier and present records.

``python tests/benchmarks/bench_presence.py`` writes an hour of each kind of record (a day of roll calls) into a
journal's file, in the frames that the broker writes, and shows the size of a day.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

from flyball.app.core import derive_id
from flyball.app.events import ClockTick, DaemonHeartbeat, Payload, RollCall, RollEntry, originate
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import Frame, frame_of, seal
from flyball.app.journal import SqliteJournal
from flyball.daemons.registry import DAEMONS

NODES, HOUR, HOURS = 36, 3600, 24
START = datetime(2026, 11, 1, tzinfo=EPOCH.tzinfo)
HEAD = [f"{name}@head" for name in DAEMONS if name not in ("broker", "selfplay_worker")]
DAEMONS_OF_CLUSTER = [*HEAD, *(f"selfplay_worker@node{number:02}" for number in range(1, NODES + 1))]
Said = Iterator[tuple[float, str, Sequence[Payload]]]
"""Seconds, producer, and what it publishes at once."""


def who(name: str) -> dict[str, str]:
    daemon, _, node = name.partition("@")
    return {"daemon": daemon, "node": node}


def heartbeats(seconds: int) -> Said:
    """Yield the events that daemons once published as signs of life.

    The ids of a worker's requests are their largest part.
    """
    for at in range(0, HOUR, seconds):
        for name in DAEMONS_OF_CLUSTER:
            requests = (derive_id(name, at), derive_id(name, at + 1)) if name.startswith("selfplay_worker") else ()
            yield at, name, [DaemonHeartbeat(**who(name), position=10**6 + at, lag=0, jobs=1, requests=requests)]


def ticks(seconds: int, *, beats: bool) -> Said:
    beat = DaemonHeartbeat(daemon="broker", node="head", position=10**6, lag=0, jobs=0, requests=())
    for at in range(0, HOUR, seconds):
        yield at, "broker@head", [ClockTick(period_seconds=float(seconds)), *([beat] if beats else [])]


def roll_calls() -> Said:
    entries = tuple(RollEntry(**who(name), position=10**6, lost=False) for name in sorted(DAEMONS_OF_CLUSTER))
    for hour in range(HOURS):
        yield HOUR * hour, "broker@head", [RollCall(daemons=entries)]


def day(said: Said, hours: int = 1) -> tuple[int, float]:
    """Write some hours of records; return their number and MB a day."""
    with tempfile.TemporaryDirectory() as folder:
        path, number = Path(folder) / "journal.sqlite", 0
        with closing(SqliteJournal(path)) as journal:
            journal.maintain()
            empty = path.stat().st_size
            for at, producer, payloads in said:
                time = START + timedelta(seconds=at)
                events = [
                    originate(one, event_id=derive_id(producer, at, index), time=time)
                    for index, one in enumerate(payloads)
                ]
                frame = Frame.parse(frame_of(events, producer=producer, epoch=1, base=number))
                now_us = (time - EPOCH) // timedelta(microseconds=1)
                journal.append([seal(frame, first=journal.head + 1, recorded_us=now_us, source=producer)])
                number += 1
            journal.maintain()
        return number * HOURS // hours, (path.stat().st_size - empty) * HOURS / hours / 1e6


if __name__ == "__main__":
    print(f"{len(DAEMONS_OF_CLUSTER)} daemons\n{'':44}records/day  MB/day")  # noqa: T201
    for name, said in {
        "before: heartbeats each 5 s": heartbeats(5),
        "before: ticks each 10 s with broker's heartbeat": ticks(10, beats=True),
        "now: roll calls": roll_calls(),
        "now: ticks each 10 s": ticks(10, beats=False),
        "now, if ticks came each 30 s": ticks(30, beats=False),
    }.items():
        records, megabytes = day(said, HOURS if "roll calls" in name else 1)
        print(f"{name:48}{records:>9,}{megabytes:>9.2f}")  # noqa: T201
