"""Playing a scenario: publications, reports and steps that never come."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from driving import KEY, promoted
from scenario_events import asked, boosted, known_after, played, trained_at
from selfplay_rig import put_model

from flyball.app.api.runs import RunLocation
from flyball.app.bus.memory import MemoryBus
from flyball.app.cli.scenario import NeverCame, Player, Reporter
from flyball.app.cli.trace import trace
from flyball.app.config import GAMES, RunFolder
from flyball.app.core import derive_id
from flyball.app.events import Event, NodeLost, Payload, PlateauDetected, originate
from flyball.app.journal import history
from flyball.app.journal.memory import MemoryJournal
from flyball.app.scenarios import SCENARIOS, ObservedStep, Plan
from flyball.app.scenarios.plan import TRACED
from flyball.app.store import FileStore, MemoryStore
from flyball.daemons.clock import SystemClock

PLATEAU = PlateauDetected(velocity=0.0, upper_bound=1.0, window_hours=6.0, least_gain=30.0)


class Told(Reporter):
    """A reporter that records its calls."""

    def __init__(self) -> None:
        self.stages, self.remedies, self.traces = list[str](), list[Payload](), dict[str, str]()
        self.well, self.trouble = None, None

    def began(self, trouble: Event[Any]) -> None:
        self.trouble = trouble

    def saw(self, seen: ObservedStep) -> None:
        self.stages.append(seen.stage)

    def remedied(self, remedy: Payload, position: int) -> None:
        self.remedies.append(remedy)

    def ended(self, traces: Mapping[str, str], *, well: bool) -> None:
        self.traces, self.well = traces, well


class Loop:
    """A bus on which a test stands in for the running loop."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.bus, self.told, self.said = MemoryBus(self.journal, SystemClock()), Told(), 0
        self.broker = self.bus.connection("broker@laptop")

    async def say(self, *payloads: Payload) -> None:
        for data in payloads:
            self.said += 1
            subject = KEY if data.scope == "config" else None
            event_id = derive_id("loop", self.said)
            await self.broker.publish(originate(data, event_id=event_id, time=SystemClock().now(), subject=subject))

    async def until(self, kind: type[Payload], count: int = 1) -> Event[Any]:
        """Wait for a count of events of a type; return the last."""
        while len(found := self.published(kind)) < count:
            await asyncio.sleep(0.005)
        return found[-1]

    async def seen(self) -> None:
        while not self.told.stages:
            await asyncio.sleep(0.005)

    def player(self, plan: Plan, pulse_s: float = 5.0) -> Player:
        return Player(self.bus, plan, self.told, pulse_s)

    def published(self, kind: type[Payload]) -> list[Event[Any]]:
        return list(history(self.journal, types={kind}))


@pytest.fixture
def loop() -> Loop:
    return Loop()


def plan(name: str) -> Plan:
    return SCENARIOS[name].plan(known_after(promoted()), MemoryStore())


async def test_remedy_is_published_after_its_step_and_caused_by_it(loop):
    stall = plan("stall")

    async def answer():
        await loop.until(type(stall.trouble))
        for data in (trained_at(1e-6), PLATEAU, boosted(1.5)):
            assert not loop.told.remedies
            await loop.say(data)
        remedy = await loop.until(type(stall.remedy), 2)
        boost = loop.published(type(boosted(1.5)))[0]
        assert (remedy.data, remedy.envelope.causationid, remedy.subject) == (stall.remedy, boost.id, KEY)
        await loop.say(trained_at(1e-3), boosted(1.0))

    await asyncio.gather(loop.player(stall).play(20), answer())
    assert loop.told.stages == ["struck", "detected", "decided", "recovered", "recovered"]
    assert (loop.told.remedies, loop.told.well) == ([stall.remedy], True)
    assert "detected: PLATEAU_DETECTED" in loop.told.traces.values()
    assert len(loop.published(type(stall.remedy))) == 2


async def test_it_beats_until_it_has_been_asked_and_not_after(loop):
    dead = plan("dead-node")

    async def answer():
        await loop.until(type(dead.pulse), 3)
        await loop.say(asked("selfplay_worker@ghost"))
        await loop.seen()
        beats = len(loop.published(type(dead.pulse)))
        await asyncio.sleep(0.1)
        assert len(loop.published(type(dead.pulse))) == beats
        lost = NodeLost(daemon="selfplay_worker", node="ghost", silent_seconds=1.0)
        await loop.say(lost, asked("selfplay_worker@laptop"))
        await loop.say(played(loop.published(type(asked("w")))[-1].id))

    await asyncio.gather(loop.player(dead, pulse_s=0.02).play(20), answer())
    assert loop.told.stages == ["struck", "detected", "decided", "recovered"]
    assert [event.data for event in loop.published(type(dead.remedy))] == [dead.remedy]


async def test_it_beats_no_more_often_than_daemons_do(loop):
    dead = plan("dead-node")
    with pytest.raises(NeverCame):
        await loop.player(dead, pulse_s=0.2).play(0.5)
    assert 2 <= len(loop.published(type(dead.pulse))) <= 3


async def test_earlier_or_missing_steps_do_not_count(loop):
    with pytest.raises(NeverCame, match=r"TRAINING_REQUESTED, by which .* struck, did not come") as error:
        await loop.player(plan("stall")).play(0.1)
    assert "games.KEY.rows_per_training" in error.value.hint
    assert (list(loop.told.traces), loop.told.well) == ([loop.told.trouble.id], False)
    await loop.say(trained_at(1e-6))
    with pytest.raises(NeverCame):
        await loop.player(plan("stall")).play(0.1)


async def test_who_interrupts_it_is_told_what_was_seen_so_far(loop):
    stall = plan("stall")
    async with asyncio.TaskGroup() as group:
        playing = group.create_task(loop.player(stall).play(20))
        await loop.until(type(stall.trouble))
        await loop.say(trained_at(1e-6))
        await loop.seen()
        playing.cancel()
    assert playing.cancelled()
    assert loop.told.trouble.id not in loop.told.traces, "nothing that was seen came of it"
    assert (list(loop.told.traces.values()), loop.told.well) == (["struck: TRAINING_REQUESTED"], False)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_who_leaves_before_the_end_is_told_what_is_still_so(name, loop, tmp_path, capsys):
    folder = RunFolder(tmp_path)
    learned = known_after(promoted(put_model(folder.store, GAMES[KEY], scale=5.0)), played("r"))
    made = SCENARIOS[name].plan(learned, FileStore(folder.store))
    await loop.player(made).play(0)
    reporter = Reporter(RunLocation(folder, None), made, as_json=False)
    reporter.began(loop.told.trouble)
    reporter.ended({loop.told.trouble.id: "injected"}, well=False)
    reporter.close()
    told = capsys.readouterr()
    assert f"trace {loop.told.trouble.id[:12]}  # injected" in told.out
    assert made.remains
    assert made.remains in told.err
    assert ("To put it right by hand" in told.err) == (made.remedy is not None)


async def test_without_waiting_the_trouble_is_all(loop):
    stall = plan("stall")
    await loop.player(stall).play(0)
    assert loop.told.trouble.data == stall.trouble
    assert [event.data for event in history(loop.journal)] == [stall.trouble]
    (effects,) = [option for option in trace.params if option.name == "effects"]
    assert effects.default == TRACED
