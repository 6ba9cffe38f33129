"""SelfplayScheduler: a request's opponents are those that matchmaking decided for its model."""

import pytest
from driving import NEW, OLD, OTHER_KEY, Driven, distributed

from app.controllers import SelfplayScheduler
from app.events import DaemonReady, MatchmakingUpdated, OpponentPick, OpponentSampled

DECIDED = MatchmakingUpdated(model=OLD, picks=(OpponentPick(agent="random", category="baselines", probability=1.0),))


@pytest.fixture
def scheduler():
    driven = Driven(SelfplayScheduler)
    driven.feed(DaemonReady(daemon="selfplay_worker", node="laptop", position=0, capacity=1), key=None)
    return driven


def test_opponents_are_drawn_as_decided_and_published(scheduler):
    assert scheduler.feed(DECIDED) == []
    asked, drawn = scheduler.envelopes(distributed())
    request, sampled = asked.data, drawn.data
    assert {one.opponents for one in request.lineups} == {("random",)}
    assert sum(one.games for one in request.lineups) == request.games
    assert isinstance(sampled, OpponentSampled)
    assert sampled.request_id == asked.id
    assert {(one.agent, one.category) for one in sampled.opponents} == {("random", "baselines")}


def test_decisions_hold_for_their_model_and_configuration(scheduler):
    scheduler.feed(DECIDED)
    (request,) = scheduler.feed(distributed(NEW, 1))
    assert request.lineups == ()
    scheduler.feed(DECIDED, key=OTHER_KEY)
    (request,) = scheduler.feed(distributed())
    assert request.lineups == ()
