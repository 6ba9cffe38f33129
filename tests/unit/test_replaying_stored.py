"""Replay of stored events, which equals replay of decoded ones."""

import json

import pytest
from generated_run import generated
from msgspec.structs import replace
from replayed import replay

from flyball.app.events import (
    EvaluationRequested,
    Event,
    ModelPromoted,
    OpponentSampled,
    SelfplayRequested,
    encode,
    originate,
)
from flyball.app.events.frames import Stored
from flyball.app.replay.replaying import Replay


@pytest.fixture(scope="module")
def run():
    return list(generated(1500, seed=3))


def stored(event: Event) -> Stored:
    body = encode(event.envelope)
    return Stored(event.sequence, event.recorded_us, event.source, event.envelope.type, event.subject, body)


def report_of(events: list[Stored], **how):
    one = Replay(**how)
    for begin in range(0, len(events), 64):
        one.feed_stored(events[begin : begin + 64])
    return one.report(events[-1].sequence)


def test_stored_events_give_the_report_of_events(run):
    report = report_of([stored(event) for event in run])
    assert report == replay(run)
    assert report.matched["SELFPLAY_REQUESTED"] > 50

    def loosely(one: Stored) -> Stored:
        return replace(one, body=json.dumps(dict(reversed(json.loads(one.body).items())), indent=1).encode())

    assert report_of([loosely(stored(event)) for event in run]) == replay(run)


@pytest.mark.parametrize("kind", [SelfplayRequested, EvaluationRequested, OpponentSampled, ModelPromoted])
def test_one_that_differs_is_found(run, kind):
    event = [event for event in run if isinstance(event.data, kind)][-1]
    update = {"model": "f" * 64}
    envelope = replace(event.envelope, data=event.data.replace(**update))
    bent = [replace(event, envelope=envelope) if one is event else one for one in run]
    report = report_of([stored(one) for one in bent])
    assert report == replay(bent)
    (found,) = (one for one in report.differences if one.event_id == event.id)
    assert (found.kind, found.recorded_at) == ("changed", event.sequence)


def test_what_nobody_concluded_is_judged_by_who_said_it(run):
    request = next(event for event in run if isinstance(event.data, SelfplayRequested))
    envelope = originate(request.data, event_id="new", time=request.recordedtime, subject=request.subject)
    said = {}
    for source in ("operator@laptop", "selfplay_scheduler@laptop"):
        intruder = Event(envelope, len(run) + 1, run[-1].recorded_us, source)
        said[source] = report_of([stored(event) for event in (*run, intruder)])
    assert (said["operator@laptop"].foreign, said["operator@laptop"].differing) == (1, 0)
    (found,) = said["selfplay_scheduler@laptop"].differences
    assert (found.kind, found.recorded_at) == ("unexpected", len(run) + 1)


@pytest.mark.parametrize("kind", [SelfplayRequested, ModelPromoted], ids=["only compared", "folded"])
@pytest.mark.parametrize("damage", [{"body": b"{"}, {"subject": "hex_7"}], ids=["no event", "another header"])
def test_replay_unreadable_event_is_left_out_and_named(run, kind, damage):
    event = next(event for event in run if isinstance(event.data, kind))
    bent = [replace(stored(one), **damage) if one is event else stored(one) for one in run]
    report = report_of(bent)
    assert [one.position for one in report.unfolded] == [event.sequence]
    assert "Malformed event" in report.unfolded[0].error
    assert report.position == run[-1].sequence
