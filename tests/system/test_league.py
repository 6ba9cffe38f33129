"""The running loop has a league: promoted models enter it, and are met in self-play; promotions are gated."""

import pytest
from running_loop import SETTINGS, running_loop
from sampled_opponents import draws_of

from app.events import (
    CheckpointAdded,
    EvaluationCompleted,
    MatchmakingUpdated,
    ModelPromoted,
    OpponentSampled,
    SelfplayComplete,
    SelfplayRequested,
)
from app.league import League, LeagueKeeper, fold_league
from app.runtime.fold import Fold
from app.store import FileStore, get_shard

EVERY_MODEL = """
[league.admission]
recent_every = 1
"""


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    """Run until models of the league were met in games that are over."""
    with running_loop(tmp_path_factory.mktemp("run") / "run", SETTINGS + EVERY_MODEL) as started:
        started.wait_for("games against a league", lambda: met_checkpoints(started))
        started.wait_for_loops(3)
        yield started


def met_checkpoints(loop) -> set[str]:
    members = {event.data.model for event in loop.events(CheckpointAdded)}
    return {name for event in loop.events(SelfplayComplete) for name in event.data.opponents} & members


@pytest.mark.timeout(500)
def test_a_league_grows_of_promoted_models(loop):
    promoted = {event.data.model for event in loop.events(ModelPromoted)}
    added = [event.data for event in loop.events(CheckpointAdded)]
    assert len(added) >= 2
    assert {data.model for data in added} <= promoted
    assert added[1].parent == added[0].model


@pytest.mark.timeout(500)
def test_opponents_are_sampled_and_played(loop):
    requests = {event.id: event.data for event in loop.events(SelfplayRequested)}
    sampled = {event.data.request_id: event.data for event in loop.events(OpponentSampled)}
    assert draws_of(loop.events())
    for event in loop.events(SelfplayComplete):
        request = requests[event.data.request_id]
        seated = {name for lineup in request.lineups for name in lineup.opponents}
        drawn = sampled.get(event.data.request_id)
        assert seated == ({draw.agent for draw in drawn.opponents} if drawn else set())
        assert set(event.data.opponents) == seated - {request.model}


@pytest.mark.timeout(500)
def test_only_the_heros_seats_give_rows(loop):
    requests = {event.id: event.data for event in loop.events(SelfplayRequested)}
    played = [e.data for e in loop.events(SelfplayComplete) if e.data.opponents][-1]
    try:
        shard = get_shard(FileStore(loop.folder / "store"), played.shard.key)
    except FileNotFoundError:
        pytest.skip("trained on and deleted meanwhile")
    game = 0
    for lineup in requests[played.request_id].lineups:
        for number in range(lineup.games):
            seats = set(shard.seat[shard.game == game].tolist())
            assert seats <= ({0, 1} if lineup.opponents == (played.shard.model,) else {number % 2})
            game += 1


@pytest.mark.timeout(500)
def test_promotions_are_gated(loop):
    gates = {e.data.model for e in loop.events(EvaluationCompleted) if e.data.purpose == "gate"}
    later = [event.data for event in loop.events(ModelPromoted) if event.data.previous is not None]
    assert later
    for promotion in later:
        assert promotion.model in gates
        assert promotion.evidence.games > 0
        assert promotion.evidence.value > promotion.evidence.threshold


@pytest.mark.timeout(500)
def test_the_keepers_league_follows_from_the_journal(loop):
    events = loop.events()
    fold = Fold((LeagueKeeper,))
    fold.feed(events)
    (row,) = fold.rows(LeagueKeeper.name).values()
    league = League().with_baselines(["random"])
    for event in events:
        if event.subject:
            league = fold_league(league, event, fold.settings.league.admission)
    assert {*league.agents} <= {*row.league.agents}
    last = [event.data for event in events if isinstance(event.data, MatchmakingUpdated)][-1]
    assert sum(pick.probability for pick in last.picks) == pytest.approx(1)
