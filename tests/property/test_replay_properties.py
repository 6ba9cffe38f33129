"""Controllers agree however they are hosted, and live runs replay."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from bus_rig import StepClock
from generated_run import generated
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples
from random_histories import CONFIGURED, histories, stories
from replayed import replay, replayed, replayed_apart

from flyball.app.bus.memory import MemoryBus
from flyball.app.controllers.fold import HOST
from flyball.app.events import (
    ClockTick,
    DaemonReady,
    EvaluationCompleted,
    EvaluationFailed,
    Event,
    ModelDistributed,
    ParityChecked,
    Payload,
    QualityScoreUpdated,
    SelfplayComplete,
    SelfplayFailed,
    TrainingCompleted,
    TrainingFailed,
    originate,
)
from flyball.app.job_specs import JobContext
from flyball.app.journal import history
from flyball.app.journal.memory import MemoryJournal, MemoryStateStore
from flyball.app.replay.replaying import Replay, Report
from flyball.daemons.host import Host, Ports, Rhythm
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.registry import DAEMONS
from flyball.daemons.saved_state import KNOWN_KEY

DECIDERS = {name: spec for name, spec in DAEMONS.items() if spec.controllers}
READS = frozenset[type[Payload]]().union(*(spec.reads for spec in DECIDERS.values()))
FACTS = (
    ClockTick,
    DaemonReady,
    EvaluationCompleted,
    EvaluationFailed,
    ModelDistributed,
    ParityChecked,
    QualityScoreUpdated,
    SelfplayComplete,
    SelfplayFailed,
    TrainingCompleted,
    TrainingFailed,
)
NEVER_SECONDS = 1e6
OFTEN = st.integers(0, 4).map(bool)


def _both_ways(events: Sequence[Event[Payload]]) -> tuple[Report, list[Report]]:
    """Return the reports of controllers hosted together and apart. Checks that their rows and conclusions agree."""
    together, apart = replayed(events), replayed_apart(events)
    assert together.tables() == {name: rows for one in apart for name, rows in one.tables().items()}
    whole, parts = together.report(len(events)), [one.report(len(events)) for one in apart]
    assert whole.matched == sum((Counter(part.matched) for part in parts), Counter())
    in_flight = [one for part in parts for one in part.in_flight]
    assert sorted(whole.in_flight, key=lambda one: one.envelope.id) == sorted(
        in_flight, key=lambda one: one.envelope.id
    )
    return whole, parts


@given(events=histories(READS, max_size=40))
def test_split_and_merged_hosting_agree(events):
    _both_ways(events)


@settings(max_examples=5)
@given(seed=st.integers(0, 1000))
def test_split_and_merged_hosting_agree_on_a_run(seed):
    whole, parts = _both_ways(list(generated(1500, seed=seed)))
    assert whole.differing == sum(part.differing for part in parts) == 0


@given(events=histories(READS, max_size=40), cut=st.integers(1, 40))
def test_a_replay_goes_on_where_it_was_saved(events, cut):
    whole = replay(events)
    first = Replay()
    first.feed(events[:cut], keep=True)
    rest = Replay(saved={key: row for key, row in first.changes().items() if row is not None})
    rest.feed(events[cut:])
    assert rest.report(len(events)) == whole


class Scene(NamedTuple):
    """A fact to publish, and preparations for it.

    Attributes:
        fact: the event.
        seconds: since the fact before.
        settled: whether everything is settled first.
        again: whether all daemons are restarted first.
    """

    fact: Event[Payload]
    seconds: float
    settled: bool
    again: bool


@st.composite
def _scenes(draw: st.DrawFn) -> list[Scene]:
    """Draw facts, most of them answers to what the controllers want. Their ids are the same in the live run."""
    facts = draw(stories(FACTS, max_size=30)).said
    return [
        Scene(fact, (fact.recorded_us - before.recorded_us) / 1e6, draw(OFTEN), not draw(OFTEN))
        for before, fact in pairwise(facts)
    ]


class Stage:
    """All daemons that decide, over a bus in memory.

    Attributes:
        end: the journal's end before the daemons stop. Nobody sees what is recorded later, which may be due by then.
    """

    def __init__(self) -> None:
        self.journal, self.clock = MemoryJournal(), StepClock()
        self.bus = MemoryBus(self.journal, self.clock, producer="broker@laptop")
        self.states = {name: MemoryStateStore() for name in DECIDERS}
        self.end, self._stop, self._starts = 0, asyncio.Event(), 0
        self._running: list[asyncio.Task[None]] = []

    def start(self, group: asyncio.TaskGroup) -> None:
        self._stop, self._starts = asyncio.Event(), self._starts + 1
        for name, spec in DECIDERS.items():
            identity = WorkerIdentity(name=f"{name}@laptop", node="laptop", context=JobContext(store="store"))
            ports = Ports(self.bus, self.states[name], self.clock)
            host = Host(spec, identity, f"boot-{self._starts}", ports, Rhythm(NEVER_SECONDS, 1.0))
            self._running.append(group.create_task(host.run(self._stop)))

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._running)
        self._running.clear()

    async def settle(self) -> None:
        """Wait until no daemon publishes any more."""
        head = -1
        while head != self.journal.head:
            head = self.journal.head
            for _ in range(50):
                await asyncio.sleep(0)

    async def play(self, scenes: Sequence[Scene]) -> None:
        configured = originate(CONFIGURED, event_id="event-0", time=self.clock.now())
        async with asyncio.TaskGroup() as group:
            self.start(group)
            await self.bus.publish(configured)
            for scene in scenes:
                if scene.settled:
                    await self.settle()
                self.clock.seconds += scene.seconds
                if scene.again:
                    await self.stop()
                    self.start(group)
                await self.bus.publish(scene.fact.envelope)
            await self.settle()
            self.end = self.journal.head
            await self.stop()
        await self.bus.close()


def _rows(stage: Stage) -> dict[tuple[str, str], bytes]:
    """Return all rows that the daemons saved."""
    saved = [store.load()[1] for store in stage.states.values()]
    return {key: row for rows in saved for key, row in rows.items() if key[0] != HOST and key != KNOWN_KEY}


@settings(max_examples=examples(40))
@given(scenes=_scenes())
def test_replay_equals_live(scenes):
    async def live() -> Stage:
        stage = Stage()
        await stage.play(scenes)
        return stage

    stage = asyncio.run(live())
    one = Replay()
    one.feed([event for event in history(stage.journal) if event.sequence <= stage.end])
    report = one.report(stage.end)
    assert (report.differing, report.in_flight) == (0, ())
    tables = {name: rows for name, rows in one.tables().items() if rows}
    replayed = {(name, key): row.to_json() for name, rows in tables.items() for key, row in rows.items()}
    assert replayed == _rows(stage)
