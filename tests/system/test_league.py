"""The league of the running loop. Promoted models enter it and are opponents in self-play, and promotions are gated."""

from collections.abc import Iterable
from typing import Any, TypeVar

import pytest
from running_loop import RunningLoop
from sampled_opponents import draws_of

from flyball.app.events import (
    CheckpointAdded,
    EvaluationCompleted,
    Event,
    ModelPromoted,
    OpponentSampled,
    Payload,
    SelfplayComplete,
    SelfplayRequested,
)

P = TypeVar("P", bound=Payload)


@pytest.fixture(scope="module")
def loop(loop: RunningLoop) -> RunningLoop:
    """Wait for finished games against models of the league."""
    loop.wait_for("games against a league", lambda: met_checkpoints(loop))
    loop.wait_for_loops(3)
    return loop


@pytest.fixture
def events(loop: RunningLoop) -> list[Event[Any]]:
    """Read the journal once for all comparisons of a test.

    The loop runs on, and later events may follow from events that were not read before.
    """
    return loop.events()


def met_checkpoints(loop: RunningLoop) -> set[str]:
    members = {event.data.model for event in loop.events(CheckpointAdded)}
    return {name for event in loop.events(SelfplayComplete) for name in event.data.opponents} & members


def told(events: Iterable[Event[Any]], kind: type[P]) -> list[P]:
    return [event.data for event in events if isinstance(event.data, kind)]


def lineups_asked_for(events: Iterable[Event[Any]]) -> dict[str, SelfplayRequested]:
    return {event.id: event.data for event in events if isinstance(event.data, SelfplayRequested)}


@pytest.mark.timeout(500)
def test_a_league_grows_of_promoted_models(events):
    promoted = {data.model for data in told(events, ModelPromoted)}
    added = told(events, CheckpointAdded)
    assert len(added) >= 2
    assert {data.model for data in added} <= promoted
    assert added[1].parent == added[0].model


@pytest.mark.timeout(500)
def test_opponents_are_sampled_and_played(events):
    requests = lineups_asked_for(events)
    sampled = {data.request_id: data for data in told(events, OpponentSampled)}
    assert draws_of(events)
    for played in told(events, SelfplayComplete):
        request = requests[played.request_id]
        seated = {name for lineup in request.lineups for name in lineup.opponents}
        drawn = sampled.get(played.request_id)
        assert seated == ({draw.agent for draw in drawn.opponents} if drawn else set())
        assert set(played.opponents) == seated - {request.model}


@pytest.mark.timeout(500)
def test_promotions_are_gated(events):
    evaluations = [data for data in told(events, EvaluationCompleted) if data.purpose in ("rating", "gate")]
    gated = {(data.model, match.opponent_model) for data in evaluations for match in data.results}
    later = [data for data in told(events, ModelPromoted) if data.previous is not None]
    assert later
    for promotion in later:
        assert (promotion.model, promotion.previous) in gated
        assert promotion.evidence.games > 0
        assert promotion.evidence.value > promotion.evidence.threshold
