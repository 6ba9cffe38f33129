"""Deaths of the active one of two heads under load: what was acknowledged, and what the journal has.

python tests/support/head_deaths.py KILLS STOPS PARTITIONS

Partitions need root: each head is in a network of its own then, with the journal's server and the clients beyond it.
"""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

from bus_rig import FLYBALL, checked, print_line
from cut_network import HOST, Node, network
from ports import free_port
from postgres_server import LOOPBACK, new_schema, postgres_server

from flyball.app.api.runs import is_listening
from flyball.app.bus import ZmqBus
from flyball.app.bus.access import ClientKeys
from flyball.app.bus.keys import Key, KeyList, new_pair, write_secret
from flyball.app.journal.opening import named_journal

CLIENTS, FRAME, EVENTS_PER_SECOND = 12, 4, 500
ON_THE_WAY_SECONDS = 0.5
"""Time in which a dead head's acknowledgements arrive. Clients look for the other head only after a second."""

PARTITION_SECONDS = 3.0, 20.0
"""Shortest and longest partition. The other head may begin after five seconds, and clients find it after ten."""

SETTINGS = """\
tick_seconds = 1
[deployment]
node = "{node}"
endpoint = "{own}"
other_head = "{other}"
journal = "{url}"
[deployment.keys]
secret = "../keys/head.secret"
allowed = "../keys/allowed"
"""


class Death(Enum):
    """How a head is lost."""

    KILL, STOP, PARTITION = range(3)


class Head:
    """A head's broker, in a process of its own, and in a network node if there is one."""

    def __init__(self, folder: Path, own: str, other: str, url: str, node: Node | None) -> None:
        self.endpoint, self._folder, self._node = own, folder, node
        folder.mkdir()
        (folder / "flyball.toml").write_text(SETTINGS.format(node=folder.name, own=own, other=other, url=url))
        self.start()

    def start(self) -> None:
        command = [*(self._node.entering if self._node else ()), *FLYBALL, "--run", self._folder]
        with (self._folder / "stderr").open("ab") as errors:
            self.process = subprocess.Popen([*command, "daemon", "run", "broker"], stdout=errors, stderr=errors)

    def lose(self, death: Death) -> None:
        if death is Death.PARTITION:
            assert self._node is not None
            self._node.cut()
        else:
            self.process.send_signal(signal.SIGKILL if death is Death.KILL else signal.SIGSTOP)

    def come_back(self, death: Death) -> None:
        """End a stop or a partition."""
        if death is Death.PARTITION:
            assert self._node is not None
            self._node.join()
        elif death is Death.STOP:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def two_heads(folder: Path, url: str, nodes: Sequence[Node] = ()) -> Iterator[tuple[list[Head], ClientKeys]]:
    """Run two heads with one journal, in two network nodes or on loopback. Both are killed at the end.

    Yields them, and keys for their clients.
    """
    pair = new_pair()
    write_secret(folder / "keys/head.secret", pair)
    KeyList((Key("head", "head", pair.public),)).write(folder / "keys/allowed")
    one, two = nodes or (None, None)
    first, second = (f"tcp://{node.address if node else LOOPBACK}:{free_port()}" for node in (one, two))
    heads = [Head(folder / "one", first, second, url, one), Head(folder / "two", second, first, url, two)]
    try:
        yield heads, ClientKeys(pair, pair.public)
    finally:
        for head in heads:
            head.process.kill()
            head.process.wait()


async def keep_running(heads: Sequence[Head]) -> None:
    """Start heads again whenever they end, as their supervisors do."""
    while True:
        for head in heads:
            if (code := head.process.poll()) is not None:
                assert code in (1, -signal.SIGKILL), "a supervisor would not start it again"
                head.start()
        await asyncio.sleep(0.5)


async def active(heads: Sequence[Head]) -> Head:
    """Wait until the broker of just one head serves, and return that head."""
    while True:
        serving = [head for head in heads if await asyncio.to_thread(is_listening, head.endpoint)]
        if len(serving) == 1:
            return serving[0]
        await asyncio.sleep(0.05)


@dataclass
class Deaths:
    """Acknowledgements, published events and pauses, as clients saw them.

    Attributes:
        acknowledged: positions by events' ids.
        sent: ids of each client, in the order of publishing.
        pauses: seconds from each death until the next acknowledgement.
    """

    acknowledged: dict[str, int] = field(default_factory=dict)
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
                self.acknowledged.update(zip((event.id for event in events), positions, strict=True))
            self.latest = time.monotonic()
            await asyncio.sleep(max(0.0, began + 3 * FRAME * CLIENTS / EVENTS_PER_SECOND - self.latest))

    async def resumed(self, death: float) -> None:
        """Note the pause that a death made, once there is a later acknowledgement."""
        while self.latest <= death + ON_THE_WAY_SECONDS:
            await asyncio.sleep(0.02)
        self.pauses.append(self.latest - death)


@asynccontextmanager
async def under_load(heads: Sequence[Head], keys: ClientKeys) -> AsyncIterator[Deaths]:
    """Let clients publish and keep the heads running. The context begins with the first acknowledgement."""
    seen, stop = Deaths(), asyncio.Event()
    first, second = (head.endpoint for head in heads)
    names = [f"client{number}@head" for number in range(CLIENTS)]
    buses = [ZmqBus(first, producer=name, deadline_s=120, keys=keys, other=second) for name in names]
    async with asyncio.TaskGroup() as supervisors:
        keeping = supervisors.create_task(keep_running(heads))
        async with asyncio.TaskGroup() as clients:
            for name, bus in zip(names, buses, strict=True):
                clients.create_task(seen.publish(bus, name, stop))
            await seen.resumed(0.0)
            seen.pauses.clear()
            yield seen
            stop.set()
        keeping.cancel()
    for bus in buses:
        await bus.close()


async def deaths(heads: Sequence[Head], keys: ClientKeys, seed: int, counts: dict[Death, int]) -> Deaths:
    """Lose the active head again and again under load, each time 0.2 to 2 s after the last death was overcome.

    A stopped head comes back once the other one serves, and one that is cut off before, during or after that.
    """
    draw = random.Random(seed)
    order = [death for death, count in counts.items() for _ in range(count)]
    draw.shuffle(order)
    async with under_load(heads, keys) as seen, asyncio.TaskGroup() as group:
        for death in order:
            await asyncio.sleep(draw.uniform(0.2, 2))
            head = await active(heads)
            head.lose(death)
            resumed = group.create_task(seen.resumed(time.monotonic()))
            if death is Death.PARTITION:
                await asyncio.sleep(draw.uniform(*PARTITION_SECONDS))
            else:
                await resumed
            head.come_back(death)
            await resumed
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
    if lost := [event for event, at in seen.acknowledged.items() if recorded.get(at) != event]:
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
    counts = dict(zip(Death, map(int, sys.argv[1:]), strict=True))
    with ExitStack() as context:
        nodes = context.enter_context(network(2)) if counts[Death.PARTITION] else []
        server = context.enter_context(postgres_server(HOST if nodes else ""))
        folder, url = Path(context.enter_context(TemporaryDirectory())), new_schema(server.url)
        with two_heads(folder, url, nodes) as (heads, keys):
            seen = asyncio.run(deaths(heads, keys, seed=1, counts=counts))
        pauses = sorted(seen.pauses)
        quantiles = {share: round(pauses[int(share * (len(pauses) - 1))], 2) for share in (0.5, 0.95, 1.0)}
        print_line(f"{len(seen.acknowledged)} events acknowledged, pauses in s by quantile: {quantiles}")
        print_line("\n".join(faults(seen, url)) or "nothing lost, nothing twice, order exact")


if __name__ == "__main__":
    main()
