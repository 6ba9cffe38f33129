"""A broker in a thread or process, and events to send."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

import zmq
from prepared import PREPARED

from flyball.app.api.runs import is_listening
from flyball.app.bus import Subscription, ZmqBus
from flyball.app.bus.broker import Broker
from flyball.app.config import Deployment, RunFolder
from flyball.app.core import derive_id
from flyball.app.events import DaemonReady, Envelope, Event, ParityChecked, QualityDegraded, originate
from flyball.app.journal import SqliteJournalReader, history
from flyball.app.journal.opening import named_journal
from flyball.daemons.clock import SystemClock
from flyball.daemons.run_folder import bus_endpoint

START = datetime(2024, 1, 1, tzinfo=UTC)
ROOT = Path(__file__).parents[2]


class StepClock:
    """A clock that a test moves. Its time of day may be set back; its monotonic time then stands still."""

    def __init__(self) -> None:
        self.seconds = self._latest = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        self._latest = max(self._latest, self.seconds)
        return self._latest


def checked(number: int, *, who: str = "test") -> Envelope[Any]:
    data = ParityChecked(
        request_id=derive_id("request", who),
        worker="selfplay_worker@laptop",
        shard="a" * 64,
        against="openspiel",
        checked=abs(number) + 1,
        failures=0,
    )
    return originate(data, event_id=derive_id(who, number), time=START, subject="hex7_2p")


def degraded(number: int, *, who: str = "test") -> Envelope[Any]:
    data = QualityDegraded(
        request_id=derive_id("request", who), worker="selfplay_worker@laptop", shard="a" * 64, reason="too short"
    )
    return originate(data, event_id=derive_id(who, "degraded", number), time=START, subject="hex7_2p")


@contextmanager
def broker_thread(journal: Any, endpoint: str, **options: Any) -> Iterator[Broker]:
    """Run a broker in a thread; it is stopped at the end."""
    stopped = threading.Event()
    wake, woken = os.pipe()
    broker = Broker(journal, endpoint, options.pop("clock", None) or SystemClock(), **options)
    thread = threading.Thread(target=broker.run, args=(stopped.is_set,), kwargs={"wake_fd": wake})
    thread.start()
    try:
        yield broker
    finally:
        stopped.set()
        os.write(woken, b"x")
        thread.join()
        os.close(wake)
        os.close(woken)


def spawn(*arguments: object, file: str) -> subprocess.Popen[str]:
    """Start one of the programs in a file."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"}
    command = [sys.executable, file, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


@contextmanager
def program(*arguments: object, file: str = __file__) -> Iterator[subprocess.Popen[str]]:
    """Run a program of a file, by default of this one. A program that still runs at the end is killed."""
    process = spawn(*arguments, file=file)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def expect(process: subprocess.Popen[str], words: str) -> None:
    """Wait for a program to print some words."""
    assert process.stdout is not None
    assert process.stdout.readline() == words + "\n"


@contextmanager
def broker_process(folder: Path, journal: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run a broker in a process of its own, with a journal in the folder, or at a file's path or database's URL."""
    with program("broker", folder, journal or folder / "journal.db") as process:
        expect(process, "ready")
        yield process


FLYBALL = (sys.executable, "-m", "flyball.app.cli")


@contextmanager
def broker_daemon(folder: Path, settings: str = "") -> Iterator[BaseProcess]:
    """Run the broker of a run folder until the context ends. It hardly ever ticks, and must not write to stderr."""
    (folder / "flyball.toml").write_text(f"tick_seconds = 100000\n{settings}")
    endpoint, stderr = bus_endpoint(RunFolder(folder), Deployment()), folder / "broker.stderr"
    process = PREPARED.Process(target=_run_broker, args=(folder, stderr))
    process.start()
    try:
        while not is_listening(endpoint):
            assert process.is_alive(), stderr.read_text()
            time.sleep(0.02)
        yield process
        if process.exitcode == -signal.SIGKILL:  # by the test
            return
        process.terminate()
        process.join()
        assert (process.exitcode, stderr.read_text()) == (0, "")
    finally:
        process.kill()


def _run_broker(folder: Path, stderr: Path) -> None:
    with stderr.open("w") as file:
        os.dup2(file.fileno(), 2)
    from flyball.app.cli import main

    main(["--run", str(folder), "daemon", "run", "broker"], prog_name="flyball")


def starts(folder: RunFolder) -> int:
    """Return how often the daemon has become ready, by the journal."""
    with closing(SqliteJournalReader(folder.journal)) as reader:
        return sum(event.data.daemon == "feedback" for event in history(reader, types={DaemonReady}))


def run_feedback(folder: RunFolder) -> int:
    """Return a daemon's exit code, once it was ready or ended."""
    before = starts(folder)
    command = (*FLYBALL, "--run", str(folder.path), "daemon", "run", "feedback")
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as daemon:
        while daemon.poll() is None and starts(folder) == before:
            time.sleep(0.1)
        daemon.terminate()
        return daemon.wait(timeout=60)


class RawClient:
    """A client of the wire protocol that sends anything, with keys if ``prepare`` gives them to its socket."""

    def __init__(self, endpoint: str, prepare: Callable[[zmq.Socket[bytes]], None] = lambda _: None) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.RCVTIMEO, 20_000)
        prepare(self.socket)
        self.socket.connect(endpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close(linger=0)
        self.context.term()

    def say(self, *parts: bytes) -> list[bytes]:
        """Send a message; return the answer."""
        self.socket.send_multipart(parts)
        return self.socket.recv_multipart()


def hello(producer: str, epochs: Any = (), **changes: Any) -> bytes:
    """Return a client's hello message, for a raw socket."""
    usual = {"greeting": 7, "producer": producer, "epochs": epochs, "life": 1, "place": "a test", "sole": False}
    return json.dumps(usual | changes).encode()


def address(folder: Path) -> str:
    return f"ipc://{folder}/bus"


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that no event of this loop announces."""
    while not condition():
        await asyncio.sleep(0.001)


async def gather(subscription: Subscription, count: int) -> list[Event[Any]]:
    """Read until ``count`` events have come."""
    events: list[Event[Any]] = []
    async for batch in subscription:
        events += batch.events
        if len(events) >= count:
            break
    return events


async def publish_all(bus: ZmqBus, events: Sequence[Envelope[Any]]) -> tuple[float, float, float]:
    """Publish events in frames of 64, by four tasks at once, and close the bus.

    Returns when they began and ended, and the processor time that they took; all in seconds.
    """
    frames = iter([events[i : i + 64] for i in range(0, len(events), 64)])
    await bus.publish(checked(-1, who="warm"))

    async def send() -> None:
        for frame in frames:
            await bus.publish_many(frame)

    began, busy = time.monotonic(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(send())
    took = began, time.monotonic(), time.process_time() - busy
    await bus.close()
    return took


def print_line(*words: object) -> None:
    """Print words as a line, at once: the program that started this one may wait for it."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def _serve(folder: Path, name: str) -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    journal = named_journal(name).writer()
    broker = Broker(journal, address(folder), SystemClock())
    print_line("ready")
    broker.run(stopped.is_set)
    journal.close()


async def _publish(folder: Path, who: str, count: int) -> None:
    """Publish ``count`` events by four tasks at once.

    The frames have many sizes, and every fifth frame is sent twice.
    """
    bus = ZmqBus(address(folder), producer=who)
    sizes = [1, 7, 64, 300]
    frames: deque[list[int]] = deque()
    numbers = iter(range(count))
    while frame := list(islice(numbers, sizes[len(frames) % 4])):
        frames.append(frame)

    async def send() -> None:
        while frames:
            frame = frames.popleft()
            events = [checked(i, who=who) for i in frame]
            positions = await bus.publish_many(events)
            if len(frames) % 5 == 0:
                assert await bus.publish_many(events) == positions

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(send())
    await bus.close()
    print_line("done")


async def _follow(folder: Path, count: int) -> None:
    """Read ``count`` events from the start, each once and in order. Fails otherwise."""
    bus = ZmqBus(address(folder), producer="follower")
    async with bus.subscribe(after=0) as subscription:
        print_line("ready")
        events = await gather(subscription, count)
    assert [event.sequence for event in events] == list(range(1, count + 1))
    assert len({event.id for event in events}) == count
    await bus.close()
    print_line("complete")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["broker", folder, journal]:
            _serve(Path(folder), journal)
        case ["publish", folder, who, count]:
            asyncio.run(_publish(Path(folder), who, int(count)))
        case ["follow", folder, count]:
            asyncio.run(_follow(Path(folder), int(count)))
