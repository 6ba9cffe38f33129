"""Causes of a sweep's decisions: their evidence, not the tick."""

from functools import cache

from driving import Driven, run_settings
from generated_run import generated, hasty

from flyball.app.controllers import FeedbackLoopController
from flyball.app.events import ClockTick, Event, ExplorationBoost, Kind, Payload, PlateauDetected, SelfplayRequested
from flyball.app.status.trace import trace


@cache
def run() -> tuple[Event[Payload], ...]:
    return tuple(generated(6000, seed=3, settings=hasty(), trouble=10))


def causes(event: Event[Payload]) -> list[str]:
    """Return the names of an event's causes, the first cause first."""
    found = trace(run, event.id, causes=1 << 30, effects=0)
    return [node.event.data.event_name for node in found.nodes[:-1]]


def test_decisions_of_a_run_follow_from_evidence_not_from_a_tick() -> None:
    ticks = {event.id for event in run() if isinstance(event.data, ClockTick)}
    concluded = [event for event in run() if event.data.kind is not Kind.FACT]
    assert not [event.data.event_name for event in concluded if event.envelope.causationid in ticks]
    plateaus = [event for event in run() if isinstance(event.data, PlateauDetected)]
    boosts = [event for event in run() if isinstance(event.data, ExplorationBoost) and event.data.multiplier > 1]
    assert plateaus
    assert boosts
    for event in (*plateaus, *boosts):
        line = causes(event)
        assert line[0] == "RUN_CONFIGURED"
        while line[-1] == "EXPLORATION_BOOST":  # a boost that decays follows from the boost before
            line.pop()
        assert line[-1] in ("EVALUATION_COMPLETED", "QUALITY_SCORE_UPDATED")
    by_id = {event.id: event for event in run()}
    asked = [event for event in run() if isinstance(event.data, SelfplayRequested)]
    assert {by_id[event.envelope.causationid or ""].subject == event.subject for event in asked} == {True}


def test_boost_that_decays_follows_from_the_boost_before() -> None:
    loop = Driven(FeedbackLoopController, run_settings())
    loop.feed(ExplorationBoost(multiplier=3.0, lasts_seconds=1200, reason="by hand"), at=10)
    by_hand = loop.events[-1]
    (decayed,) = loop.envelopes(ClockTick(period_seconds=10), key=None, at=1810)
    assert (decayed.data.multiplier, decayed.causationid) == (2.0, by_hand.id)
    loop.record(decayed)
    (again,) = loop.envelopes(ClockTick(period_seconds=10), key=None, at=9500)
    assert again.causationid == decayed.id
