"""Opponents of a request: lineups drawn as matchmaking decided, in whole rotations."""

from collections import Counter

import pytest
from driving import KEY, NEW, OLD, OTHER_KEY, Driven, distributed

from flyball.app.config import SelfplaySettings
from flyball.app.controllers import SelfplayScheduler
from flyball.app.controllers.scheduler import LIMITS, meeting
from flyball.app.events import DaemonReady, MatchmakingUpdated, OpponentPick, OpponentSampled

PICKS = {("mirror", OLD): 0.3, ("peers", NEW): 0.5, ("baselines", "random"): 0.2}


def decided(picks=PICKS, model: str = OLD) -> MatchmakingUpdated:
    listed = (OpponentPick(agent=agent, category=category, probability=p) for (category, agent), p in picks.items())
    return MatchmakingUpdated(model=model, picks=tuple(listed))


@pytest.mark.parametrize("players", [2, 3, 4, 7])
@pytest.mark.parametrize("games", [1, 2, 7, 50, 256])
def test_lineups_are_whole_rotations_as_even_as_possible(players, games):
    lineups, draws = meeting(decided(), OLD, players, games, seed=5)
    assert all(one.games % players == 0 and len(one.opponents) == players - 1 for one in lineups)
    assert sum(one.games for one in lineups) == games // players * players
    assert len(lineups) == min(LIMITS.most_lineups, games // players)
    shares = {one.games for one in lineups}
    assert not shares or max(shares) - min(shares) in (0, players)
    assert len(draws) == len(lineups) * min(2, players - 1)
    for number, one in enumerate(lineups):
        mine = draws[number * min(2, players - 1) :][: min(2, players - 1)]
        assert set(one.opponents) == {draw.agent for draw in mine}
        assert {draw.games for draw in mine} == {one.games}


@pytest.mark.parametrize("players", [2, 3, 4, 7])
def test_draws_have_the_probabilities_that_were_decided(players):
    counts = Counter[tuple[str, str]]()
    for seed in range(2000):
        counts.update((draw.category, draw.agent) for draw in meeting(decided(), OLD, players, 256, seed).draws)
    total = counts.total()
    chi2 = sum((counts[pick] - total * p) ** 2 / (total * p) for pick, p in PICKS.items())
    assert chi2 < 13.8  # 0.1% with two degrees of freedom


def test_lineups_repeat_by_seed_with_limited_opponents():
    assert meeting(decided(), OLD, 2, 256, 1) == meeting(decided(), OLD, 2, 256, 1)
    assert len({meeting(decided(), OLD, 2, 256, seed).lineups for seed in range(20)}) > 10
    first, last = Counter[str](), Counter[str]()
    for seed in range(400):
        met = meeting(decided(), OLD, 7, 56, seed, limits=SelfplaySettings(most_opponents=1)).lineups
        assert len({name for one in met for name in one.opponents}) == 1
        met = meeting(decided(), OLD, 7, 56, seed, limits=SelfplaySettings(most_opponents=2, most_lineups=4)).lineups
        assert len({name for one in met for name in one.opponents}) <= 2
        assert [one.games for one in met] == [14] * 4
        first.update(one.opponents[0] for one in met)
        last.update(one.opponents[-1] for one in met)
    for counts in (first, last):
        assert abs(counts[NEW] / counts.total() - 0.5) < 0.1  # 4 standard deviations
        assert abs(counts["random"] / counts.total() - 0.2) < 0.08


@pytest.mark.parametrize("known", [None, decided(model=NEW), decided({("mirror", OLD): 1.0})])
def test_without_a_decision_about_it_a_model_meets_only_itself(known):
    assert meeting(known, OLD, 2, 256, 1) == ((), ())


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


@pytest.mark.parametrize(("decided_for", "plays"), [(KEY, distributed(NEW, 1)), (OTHER_KEY, distributed())])
def test_decisions_hold_for_their_model_and_configuration(scheduler, decided_for, plays):
    scheduler.feed(DECIDED, key=decided_for)
    (request,) = scheduler.feed(plays)
    assert request.lineups == ()
