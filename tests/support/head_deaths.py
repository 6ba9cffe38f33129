"""Deaths of the active one of two heads under load: what was acknowledged, and what the journal has.

python tests/support/head_deaths.py KILLS STOPS
"""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bus_rig import FLYBALL, checked, print_line
from ports import free_port
from postgres_server import new_schema, postgres_server

from flyball.app.api.runs import is_listening
from flyball.app.bus import ZmqBus
from flyball.app.journal.opening import named_journal

CLIENTS, FRAME, EVENTS_PER_SECOND = 12, 4, 500
SETTINGS = """\
tick_seconds = 1
[deployment]
node = "{node}"
endpoint = "{own}"
other_head = "{other}"
journal = "{url}"
"""


class Head:
    """A head's broker, in a process of its own."""

    def __init__(self, folder: Path, own: str, other: str, url: str) -> None:
        self.endpoint, self._folder = own, folder
        folder.mkdir()
        (folder / "flyball.toml").write_text(SETTINGS.format(node=folder.name, own=own, other=other, url=url))
        self.start()

    def start(self) -> None:
        with (self._folder / "stderr").open("ab") as errors:
            command = [*FLYBALL, "--run", self._folder, "daemon", "run", "broker"]
            self.process = subprocess.Popen(command, stdout=errors, stderr=errors)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self, seconds: float = 60.0) -> int:
        """Wait for its end; return the exit code."""
        return self.process.wait(seconds)


@contextmanager
def two_heads(folder: Path, url: str) -> Iterator[list[Head]]:
    """Run two heads with one journal. Both are killed at the end."""
    first, second = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    heads = [Head(folder / "one", first, second, url), Head(folder / "two", second, first, url)]
    try:
        yield heads
    finally:
        for head in heads:
            with suppress(ProcessLookupError):
                head.signal(signal.SIGKILL)
            head.ended()


async def active(heads: Sequence[Head]) -> Head:
    """Wait for the head whose broker serves."""
    while True:
        for head in heads:
            if head.process.poll() is None and await asyncio.to_thread(is_listening, head.endpoint):
                return head
        await asyncio.sleep(0.05)


@dataclass
class Deaths:
    """Acknowledgements, published events and pauses, as clients saw them.

    Attributes:
        acknowledged: events' ids by position.
        sent: ids of each client, in the order of publishing.
        pauses: seconds from each death until the next acknowledgement.
    """

    acknowledged: dict[int, str] = field(default_factory=dict)
    sent: dict[str, list[str]] = field(default_factory=dict)
    pauses: list[float] = field(default_factory=list)
    latest: float = 0.0  # time of the latest acknowledgement

    async def publish(self, bus: ZmqBus, name: str, stop: asyncio.Event) -> None:
        """Publish frames at a client's share of the load, three in flight, until ``stop`` is set."""
        ids, number = self.sent.setdefault(name, []), 0
        while not stop.is_set():
            frames = [[checked(number + FRAME * k + i, who=name) for i in range(FRAME)] for k in range(3)]
            number += 3 * FRAME
            ids += [event.id for events in frames for event in events]
            began = time.monotonic()
            for events, positions in zip(frames, await asyncio.gather(*map(bus.publish_many, frames)), strict=True):
                self.acknowledged.update({at: event.id for at, event in zip(positions, events, strict=True)})
            self.latest = time.monotonic()
            await asyncio.sleep(max(0.0, began + 3 * FRAME * CLIENTS / EVENTS_PER_SECOND - self.latest))

    async def resumed(self, death: float) -> None:
        """Note the pause that a death made, once there is a later acknowledgement."""
        while self.latest <= death:
            await asyncio.sleep(0.02)
        self.pauses.append(self.latest - death)


async def deaths(heads: Sequence[Head], seed: int, kills: int, stops: int) -> Deaths:
    """Let the active head die again and again under load: killed, or stopped and continued after its successor serves.

    Each death comes 0.2 to 2 s after the last one was overcome, and the dead head starts again as the standby.
    """
    draw, seen, stop = random.Random(seed), Deaths(), asyncio.Event()
    kinds = [signal.SIGKILL] * kills + [signal.SIGSTOP] * stops
    draw.shuffle(kinds)
    addresses = [head.endpoint for head in heads]
    names = [f"client{number}" for number in range(CLIENTS)]
    buses = [ZmqBus(addresses[0], producer=name, deadline_s=120, other=addresses[1]) for name in names]
    async with asyncio.TaskGroup() as group:
        for name, bus in zip(names, buses, strict=True):
            group.create_task(seen.publish(bus, name, stop))
        await seen.resumed(0.0)
        seen.pauses.clear()
        for kind in kinds:
            await asyncio.sleep(draw.uniform(0.2, 2))
            head = await active(heads)
            head.signal(kind)
            await seen.resumed(time.monotonic())
            if kind == signal.SIGSTOP:
                head.signal(signal.SIGCONT)
            await asyncio.to_thread(head.ended)
            head.start()
        stop.set()
    for bus in buses:
        await bus.close()
    return seen


def faults(seen: Deaths, url: str) -> list[str]:
    """Return what the journal lacks, has twice or has in another order than it was acknowledged or sent."""
    found, recorded = [], dict[int, str]()
    with closing(named_journal(url).reader()) as reader:
        position = 0
        while (chunk := reader.read(position)).records:
            for record in chunk.records:
                ids = [body.decode().split('"id":"', 1)[1].split('"', 1)[0] for body in record.frame.bodies()]
                recorded.update({record.first + offset: event for offset, event in enumerate(ids)})
            position = chunk.position
        if list(recorded) != list(range(1, reader.head + 1)):
            found.append("positions have gaps")
    if lost := {at: event for at, event in seen.acknowledged.items() if recorded.get(at) != event}:
        found.append(f"{len(lost)} acknowledged events are not at their position")
    if twice := [event for event, count in Counter(recorded.values()).items() if count > 1]:
        found.append(f"{len(twice)} events are recorded twice")
    places = {event: at for at, event in recorded.items()}
    for name, ids in seen.sent.items():
        order = [places[event] for event in ids if event in places]
        if order != sorted(order) or len(order) < len(ids):
            found.append(f"events of {name} are missing or in another order")
    return found


def main() -> None:
    kills, stops = map(int, sys.argv[1:])
    with postgres_server() as server, TemporaryDirectory() as folder:
        url = new_schema(server.url)
        with two_heads(Path(folder), url) as heads:
            seen = asyncio.run(deaths(heads, seed=1, kills=kills, stops=stops))
        pauses = sorted(seen.pauses)
        quantiles = {share: round(pauses[int(share * (len(pauses) - 1))], 2) for share in (0.5, 0.95, 1.0)}
        print_line(f"{len(seen.acknowledged)} events acknowledged, pauses in s by quantile: {quantiles}")
        print_line("\n".join(faults(seen, url)) or "nothing lost, nothing twice, order exact")


if __name__ == "__main__":
    main()
