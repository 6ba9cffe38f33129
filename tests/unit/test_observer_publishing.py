"""The observer's publisher: what it published before, and signs of life."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from bus_rig import StepClock

from flyball.app.bus.memory import MemoryBus
from flyball.app.bus.ports import Sign
from flyball.app.config.loading import load
from flyball.app.events import DaemonFact, Envelope, Payload
from flyball.app.journal.memory import MemoryJournal
from flyball.daemons.observer import Complaint, NewFact, Observer, Publisher, mapped_rules

SETTINGS = """
configs = ["mine_2p"]
mode = "advise"
[games.mine_2p]
backend = "external"
game = "mine"
players = 2
builtins = ["random"]
[observe.results]
file = "results.csv"
fact = "evaluation"
fields = { model = "ckpt", step = "step", opponent = "opp", wins = "w", losses = "l" }
"""


class NotingBus(MemoryBus):
    """A bus that notes the facts that it is asked to publish; daemons' own are left out."""

    def __init__(self) -> None:
        super().__init__(MemoryJournal(), StepClock(), producer="observer@x")
        self.asked: list[Payload] = []

    async def publish_many(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        self.asked += [envelope.data for envelope in envelopes if not isinstance(envelope.data, DaemonFact)]
        return await super().publish_many(envelopes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flyball.toml").write_text(SETTINGS)
    (tmp_path / "results.csv").write_text("ckpt,step,opp,w,l\na,1,random,60,40\nb,2,a,60,40\n")
    return tmp_path


async def observed(folder: Path, bus: NotingBus, facts: int) -> list[Payload]:
    """Run a publisher until it has published so many facts, and a moment longer."""
    bus.asked, stop = [], asyncio.Event()
    publisher = Publisher(Observer(mapped_rules(load(folder))), bus, "x")
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(publisher.run(stop, beat_seconds=1.0))
        while len(bus.asked) < facts:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        stop.set()
    return bus.asked


async def test_restart_asks_to_publish_only_what_is_new(folder: Path) -> None:
    """A broker recognises only so many ids, so that an observer has to know what it published."""
    bus = NotingBus()
    assert len(await observed(folder, bus, 3)) >= 3
    with (folder / "results.csv").open("a") as file:
        file.write("c,3,b,60,40\n")
    (evaluation, *_) = await observed(folder, bus, 1)
    assert evaluation.step == 3


class LongPast(Observer):
    """An observer whose files take long to read."""

    def __init__(self) -> None:
        super().__init__(())
        self.left = 1000

    def look(self) -> Iterator[Sequence[NewFact | Complaint]]:
        while self.left:
            time.sleep(0.1)
            self.left -= 1
            yield []


async def test_signs_of_life_and_a_stop_need_no_end_of_a_look() -> None:
    reading, stop, bus = LongPast(), asyncio.Event(), NotingBus()
    signs = list[Sign]()
    bus.show_life = signs.append
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(Publisher(reading, bus, "x").run(stop, beat_seconds=0.02))
        while reading.left > 995:
            await asyncio.sleep(0.01)
        stop.set()
    assert len(signs) > 10
    assert reading.left > 950
