"""The bus with thousands of clients that publish in turn, and a head's daemons that read all.

``pytest tests/benchmarks/bench_bus_clients.py -m benchmark -s``: publishers, readers, and the broker are processes of
their own, with a journal in a file and with one in PostgreSQL.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter

import psutil
import pytest
import zmq
from bus_rig import address, broker_process, checked, expect, hello, print_line, program
from postgres_server import new_schema

from flyball.app.bus import ZmqBus, wire
from flyball.app.events.frames import frame_of

pytestmark = pytest.mark.benchmark
SECONDS, READERS = 20, 12
LOADS = (12, 500), (1000, 500), (4000, 500), (4000, 5000)
"""Numbers of publishers, and events a second of all of them."""


@contextmanager
def publishers(endpoint: str, count: int) -> Iterator[list[zmq.Socket[bytes]]]:
    """Connect and greet; yield the sockets once the broker has welcomed all of them."""
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        context.set(zmq.MAX_SOCKETS, count + 8)
        sockets = [stack.enter_context(context.socket(zmq.DEALER)) for _ in range(count)]
        for number, socket in enumerate(sockets):
            socket.connect(endpoint)
            socket.send_multipart([wire.HELLO, hello(f"client{number}", ((1, 0),))])
        for socket in sockets:
            kind, *_ = socket.recv_multipart()
            assert kind[:1] == wire.WELCOME
        yield sockets


def acknowledgements(sockets: list[zmq.Socket[bytes]], rate: int) -> list[float]:
    """Publish single events at a steady rate, each client in its turn; return the seconds until each was acknowledged.

    A client whose last event is not acknowledged yet publishes late, and its delay counts.
    """
    poller, due, took = zmq.Poller(), dict[zmq.Socket[bytes], float](), list[float]()

    def collect(until: float) -> None:
        for socket, _ in poller.poll(max(0, int(1000 * (until - perf_counter())))):
            kind, *_ = socket.recv_multipart()
            if kind == wire.BEAT:
                continue
            assert kind[:1] == wire.ACK
            took.append(perf_counter() - due.pop(socket))
            poller.unregister(socket)

    start = perf_counter() + 0.1
    for number in range(rate * SECONDS):
        turn, client = divmod(number, len(sockets))
        socket, at = sockets[client], start + number / rate
        frame = frame_of([checked(turn, who=f"client{client}")], producer=f"client{client}", epoch=1, base=turn)
        while socket in due or perf_counter() < at:
            collect(at)
        due[socket] = at
        socket.send_multipart([wire.FRAME, frame])
        poller.register(socket, zmq.POLLIN)
    while due:
        collect(perf_counter() + 1)
    return took


async def read(folder: Path) -> None:
    """Read all events, as each of the readers."""

    async def follow(number: int) -> None:
        async with ZmqBus(address(folder), producer=f"reader{number}").subscribe() as subscription:
            async for _ in subscription:
                pass

    async with asyncio.TaskGroup() as group:
        for number in range(READERS):
            group.create_task(follow(number))
        print_line("ready")


def figures(folder: Path, journal: str, clients: int, rate: int) -> str:
    """Return a row of the table."""
    folder.mkdir()
    with broker_process(folder, journal) as process, program("read", folder, file=__file__) as reader:
        expect(reader, "ready")
        broker, began = psutil.Process(process.pid), perf_counter()
        with publishers(address(folder), clients) as sockets:
            connected, before = perf_counter() - began, broker.cpu_times()
            took = sorted(acknowledgements(sockets, rate))
        after = broker.cpu_times()
        busy = after.user + after.system - before.user - before.system
        return (
            f"{clients:>6} {rate:>6} {connected:>10.2f} {1e3 * took[len(took) // 2]:>8.2f} "
            f"{1e3 * took[len(took) * 99 // 100]:>8.2f} {1e6 * busy / len(took):>10.0f} "
            f"{broker.memory_info().rss >> 20:>8}"
        )


@pytest.mark.timeout(600)
def test_many_clients(postgres, tmp_path, capsys):
    """Each row has a broker of its own."""
    with capsys.disabled():
        sys.stdout.write("\njournal    clients events/s connect, s p50, ms p99, ms broker, us/event RSS, MB\n")
        for clients, rate in LOADS:
            for name, journal in (("file", ""), ("PostgreSQL", new_schema(postgres))):
                sys.stdout.write(f"{name:<10} {figures(tmp_path / f'{name}{clients}{rate}', journal, clients, rate)}\n")


if __name__ == "__main__":
    asyncio.run(read(Path(sys.argv[2])))
