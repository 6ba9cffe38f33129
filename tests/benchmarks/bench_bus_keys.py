"""The cost of keys on the bus, over TCP.

The same publishes and deliveries run with CURVE and without, in turns. Run with
``pytest tests/benchmarks/bench_bus_keys.py -m benchmark -s``. Publisher, broker and subscriber are processes of their
own. Only the ratio of processor times is judged; rates depend on the machine's other load.
"""

import asyncio
import sys
from pathlib import Path
from statistics import median
from threading import Event as Flag
from time import process_time

import pytest
from bus_rig import checked, print_line, program, publish_all
from keyed_bus import refusals_as_events

from flyball.app.bus import ZmqBus
from flyball.app.bus.access import Access, ClientKeys
from flyball.app.bus.broker import Broker
from flyball.app.bus.keys import Key, KeyList, new_pair, read_secret, write_secret
from flyball.app.journal import SqliteJournal
from flyball.daemons.clock import SystemClock
from flyball.daemons.rights import rights

pytestmark = pytest.mark.benchmark
EVENTS = 60_000
ROUNDS = 11
MODES = ("plain", "curve")


def words(process) -> list[str]:
    return process.stdout.readline().split()


def one_round(folder: Path, mode: str) -> tuple[float, float]:
    """Return acknowledged events a second, and processor microseconds an event.

    The latter are those of all three processes.
    """
    folder.mkdir()
    for name in ("head", "node"):
        write_secret(folder / name, new_pair())
    KeyList().authorize(Key("node", "head", read_secret(folder / "node").public)).write(folder / "allowed")
    with program("broker", folder, mode, file=__file__) as broker:
        endpoint = words(broker)[0]
        with program("follow", folder, mode, endpoint, file=__file__) as follower:
            assert words(follower) == ["ready"]
            with program("publish", folder, mode, endpoint, file=__file__) as publisher:
                began, ended, publishing = map(float, words(publisher))
            reading = float(words(follower)[0])
        broker.terminate()
        serving = float(words(broker)[0])
    return EVENTS / (ended - began), 1e6 * (publishing + reading + serving) / EVENTS


@pytest.mark.timeout(600)
def test_keys_cost_little_beside_what_events_cost(tmp_path, capsys):
    rounds = [
        {mode: one_round(tmp_path / f"{mode}{number}", mode) for mode in MODES[:: 1 - 2 * (number % 2)]}
        for number in range(ROUNDS)
    ]
    rates = [one["curve"][0] / one["plain"][0] for one in rounds]
    costs = [one["curve"][1] / one["plain"][1] for one in rounds]
    with capsys.disabled():
        for mode in MODES:
            rate, cost = (median(one[mode][i] for one in rounds) for i in range(2))
            sys.stdout.write(f"\n{mode}: {rate:,.0f} events/s, {cost:.1f} us/event of processor time")
        for what, ratios in (("rate", rates), ("processor time", costs)):
            sys.stdout.write(
                f"\nCURVE / plain, {what}: {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})\n"
            )
    assert median(costs) < 1.5


# Programs ------------------------------------------------------------------------------------------------------------


def serve(folder: Path, mode: str) -> None:
    import signal

    stopped, clock = Flag(), SystemClock()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    access = Access(read_secret(folder / "head"), folder / "allowed", rights(), clock.now) if mode == "curve" else None
    journal = SqliteJournal(folder / "journal.db")
    broker = Broker(journal, "tcp://127.0.0.1:*", clock, access=access, write=refusals_as_events)
    print_line(broker.endpoint)
    busy = process_time()
    broker.run(stopped.is_set)
    print_line(process_time() - busy)
    journal.close()


def connect(folder: Path, mode: str, endpoint: str, name: str) -> ZmqBus:
    keys = ClientKeys(read_secret(folder / "node"), read_secret(folder / "head").public) if mode == "curve" else None
    return ZmqBus(endpoint, producer=f"{name}@node", keys=keys)


async def publish(folder: Path, mode: str, endpoint: str) -> None:
    events = [checked(i) for i in range(EVENTS)]
    print_line(*await publish_all(connect(folder, mode, endpoint, "publisher"), events))


async def follow(folder: Path, mode: str, endpoint: str) -> None:
    bus = connect(folder, mode, endpoint, "follower")
    async with bus.subscribe(after=0) as subscription:
        print_line("ready")
        busy = process_time()
        async for batch in subscription:
            if batch.position >= EVENTS:
                break
    print_line(process_time() - busy)
    await bus.close()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["broker", folder, mode]:
            serve(Path(folder), mode)
        case ["publish", folder, mode, endpoint]:
            asyncio.run(publish(Path(folder), mode, endpoint))
        case ["follow", folder, mode, endpoint]:
            asyncio.run(follow(Path(folder), mode, endpoint))
