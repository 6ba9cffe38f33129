"""Replay: controllers' conclusions are compared with the journal. The report tells every kind of difference apart."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from generated_run import generated, laptop
from msgspec.structs import replace
from replayed import replay

from flyball.app.controllers import FeedbackState
from flyball.app.controllers.league_keeper import LeagueRow
from flyball.app.core import ModelHash
from flyball.app.events import (
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    Event,
    ModelPromoted,
    Payload,
    RollCall,
    RollEntry,
    RunConfigured,
    SelfplayRequested,
    originate,
)
from flyball.app.league.league import Agent, League
from flyball.app.replay.explain import NonDeterministicReplay, explain, verify
from flyball.app.replay.replaying import Replay, state_hash

Events = list[Event[Payload]]
OTHER = ModelHash("f" * 64)


@pytest.fixture(scope="module")
def run() -> Events:
    """Return the first minute of a run with promotions."""
    return list(generated(2500, seed=1))


def first(events: Events, kind: type[Payload], nth: int = 0) -> Event[Any]:
    return [event for event in events if isinstance(event.data, kind)][nth]


def changed(events: Events, event: Event[Any], **update: Any) -> Events:
    envelope = replace(event.envelope, data=event.data.replace(**update))
    return [replace(event, envelope=envelope) if one is event else one for one in events]


def without(events: Events, *gone: Event[Any]) -> Events:
    return [event for event in events if all(event is not one for one in gone)]


def story_of(events: Events) -> Any:
    report = replay(events)
    with pytest.raises(NonDeterministicReplay) as found:
        verify(lambda: events, report)
    return found.value.story


def test_a_run_replays(run):
    report = replay(run)
    assert (report.differing, report.differences, report.foreign) == (0, (), 0)
    assert report.position == len(run)
    assert {"MODEL_PROMOTED", "SELFPLAY_REQUESTED", "TRAINING_REQUESTED"} <= report.matched.keys()
    verify(lambda: run, report)


def test_changed_decision_is_told_with_its_fields_and_causes(run):
    promotion = first(run, ModelPromoted, 3)
    story = story_of(changed(run, promotion, elo=promotion.data.elo + 1, model=OTHER))
    assert story.difference.kind == "changed"
    assert story.difference.by == "ModelLifecycleCoordinator"
    assert story.recorded.sequence == promotion.sequence
    assert story.recomputed == promotion.envelope
    assert {field.path for field in story.fields} == {"data.elo", "data.model"}
    assert f'"{OTHER}"' in {field.recorded for field in story.fields}
    assert story.causes[-1].id == promotion.envelope.causationid
    assert story.headline().startswith(f"MODEL_PROMOTED about {promotion.subject}, recorded at {promotion.sequence},")
    promotion = first(run, ModelPromoted, -1)
    report = replay(changed(run, promotion, model=OTHER))
    story = explain(lambda: run, report.differences[0], causes=3)
    assert len(story.causes) == 3
    assert story.earlier > 0
    for cause, effect in zip(story.causes, story.causes[1:], strict=False):
        assert effect.envelope.causationid == cause.id


def test_missing_and_unexpected_decisions_are_told(run):
    request = first(run, SelfplayRequested, 5)
    story = story_of(without(run, request))
    assert (story.difference.kind, story.recorded) == ("missing", None)
    assert story.recomputed == request.envelope
    assert story.causes[-1].id == request.envelope.causationid
    assert "never recorded" in story.headline()
    promotion = first(run, ModelPromoted, 2)
    invented = originate(promotion.data, event_id="invented", time=promotion.envelope.time, subject=promotion.subject)
    at = run.index(promotion)
    events = [*run[:at], replace(promotion, envelope=invented), *run[at:]]
    story = story_of(events)
    assert (story.difference.kind, story.difference.by) == ("unexpected", "model_lifecycle@laptop")
    assert (story.recorded.id, story.recomputed, story.causes) == ("invented", None, ())
    promotion = first(run, ModelPromoted, 2)
    decided = originate(promotion.data, event_id="decided", time=promotion.envelope.time, subject=promotion.subject)
    events = [*run, replace(promotion, envelope=decided, source="cli@laptop", sequence=len(run) + 1)]
    report = replay(events)
    assert (report.differing, report.foreign) == (0, 1)


def _end_before(kind: type[Payload]) -> Callable[[Events], tuple[Events, Event[Any]]]:
    def cut(run: Events) -> tuple[Events, Event[Any]]:
        last = first(run, kind, -1)
        return run[: run.index(last)], last

    return cut


@pytest.mark.parametrize("kind", [ModelPromoted, SelfplayRequested])
def test_at_the_end_a_decision_may_be_in_flight(run, kind):
    events, last = _end_before(kind)(run)
    report = replay(events)
    assert report.differing == 0
    assert [one.envelope for one in report.in_flight if one.envelope.id == last.id] == [last.envelope]


def test_decision_is_in_flight_until_its_daemon_passes(run):
    events, last = _end_before(ModelPromoted)(run)
    cause = next(event for event in events if event.id == last.envelope.causationid)
    entry = RollEntry(daemon="model_lifecycle", node="laptop", position=cause.sequence, lost=False)
    beat = DaemonHeartbeat(daemon="model_lifecycle", node="laptop", position=cause.sequence, lag=0, jobs=0, requests=())
    for fact in (RollCall(daemons=(entry,)), beat):
        heard = Event(originate(fact, event_id="said", time=last.envelope.time), last.sequence, last.recorded_us, "x@y")
        report = replay([*events, heard])
        assert [(one.kind, one.event_id) for one in report.differences] == [("missing", last.id)]

    for position in (cause.sequence - 1, None):
        before = RollCall(daemons=(entry.replace(position=position),))
        heard = replace(heard, envelope=originate(before, event_id="said", time=last.envelope.time))
        assert replay([*events, heard]).differing == 0
    events, last = _end_before(ModelPromoted)(run)
    who = {"daemon": "model_lifecycle", "node": "laptop"}
    told = (
        DaemonStarted(**who, pid=1, version="0"),
        DaemonHeartbeat(**who, position=last.sequence, lag=0, jobs=0, requests=()),
        DaemonStopped(**who, position=last.sequence),
        DaemonReady(**who, position=last.sequence, capacity=0),
    )
    heard = [
        Event(
            originate(fact, event_id=f"fact-{n}", time=last.envelope.time), last.sequence + n, last.recorded_us, "x@y"
        )
        for n, fact in enumerate(told)
    ]
    report = replay([*events, *heard[:-1]])
    assert (report.differing, [one.envelope.id for one in report.in_flight]) == (0, [last.id])
    assert replay([*events, *heard]).differing == 1


@pytest.mark.parametrize("later", [False, True], ids=["before the change", "after it"])
def test_decisions_of_another_version_are_told_apart(run, later):
    """Differences from an earlier program are no failure of a replay."""
    promotion = first(run, ModelPromoted, 3)
    calls = [event for event in run if isinstance(event.data, RollCall)]
    call = next(call for call in (calls if later else calls[::-1]) if (call.sequence < promotion.sequence) == later)
    started = DaemonStarted(daemon="model_lifecycle", node="laptop", pid=9, version="another")
    envelope = originate(started, event_id="restarted", time=call.envelope.time)
    events = [replace(one, envelope=envelope) if one is call else one for one in run]
    report = replay(changed(events, promotion, elo=promotion.data.elo + 1))
    (handover,) = report.handovers
    assert (handover.daemon, handover.version, handover.position) == ("model_lifecycle", "another", call.sequence)
    assert (handover.differing > 0, report.differing > 0) == (not later, later)


def test_differences_are_counted_from_the_first_position(run):
    early, late = first(run, ModelPromoted, 0), first(run, ModelPromoted, 6)
    events = changed(changed(run, early, elo=99_999.0), late, elo=99_999.0)
    cause = next(event for event in run if event.id == late.envelope.causationid)
    assert [one.recorded_at for one in replay(events).differences] == [early.sequence, late.sequence]
    assert [one.recorded_at for one in replay(events, first=cause.sequence).differences] == [late.sequence]
    assert replay(events, first=cause.sequence + 1).differing == 0
    events = [event for event in run if not isinstance(event.data, SelfplayRequested)]
    requests = len(run) - len(events)
    report = replay(events)
    assert report.differing + len(report.in_flight) >= requests
    assert len(report.in_flight) <= 3
    positions = [one.position for one in report.differences]
    assert positions == sorted(positions)
    assert len(positions) == 100
    events = without(run, first(run, SelfplayRequested, 0), first(run, SelfplayRequested, 1))
    with pytest.raises(NonDeterministicReplay, match=r"first of \d+ differences") as found:
        verify(lambda: events, replay(events))
    assert "impure" in found.value.hint


def _resumed(events: Sequence[Event[Payload]], cuts: Sequence[int]) -> Replay:
    run, saved = events[0].id, dict[Any, bytes]()
    one = Replay(run=run)
    for start, end in zip((0, *cuts), (*cuts, len(events)), strict=True):
        one.feed(list(events[start:end]), keep=True)
        saved = {key: row for key, row in (saved | one.changes()).items() if row is not None}
        one = Replay(saved=saved, run=run)
    return one


@pytest.mark.parametrize("cuts", [(1,), (700,), (100, 101, 1900)])
def test_saved_and_loaded_again_it_comes_to_the_same_report(run, cuts):
    promotion = first(run, ModelPromoted, 3)
    for events in (run, changed(run, promotion, elo=99_999.0), without(run, promotion)):
        assert _resumed(events, cuts).report(events[-1].sequence) == replay(events)


def test_state_hash_depends_on_every_row_and_on_no_order():
    tables = {"A": {"x": FeedbackState(config_key="x"), "y": FeedbackState(config_key="y")}, "B": {}}
    same = {"A": dict(reversed(tables["A"].items()))}
    assert state_hash(tables) == state_hash(same)
    assert state_hash(tables) != state_hash({"A": {"x": FeedbackState(config_key="x")}})
    other = FeedbackState(config_key="x", games_played=1)
    assert state_hash(tables) != state_hash({"A": tables["A"] | {"x": other}})
    agents = {name: Agent(id=name, kind="checkpoint", step=0) for name in "ab"}
    rows = [LeagueRow(league=League(agents=dict(some))) for some in (agents.items(), reversed(agents.items()))]
    assert len({state_hash({"C": {"": row}}) for row in rows}) == 1


def test_settings_that_change_on_the_way_are_followed(run):
    settings = laptop(feedback={"lifecycle": {"max_games": 2}}).model_dump(mode="json")
    at = 1000
    envelope = originate(RunConfigured(run_id="r", settings=settings), event_id="again", time=run[0].envelope.time)
    again = replace(run[0], envelope=envelope, sequence=at + 1, recorded_us=run[at - 1].recorded_us)
    events = [*run[:at], again, *run[at:]]
    assert replay(events).differing > 0
    assert replay(events[: at + 1]).differing == 0
