"""The league of the running loop.

Promoted models enter it and are opponents in self-play, and promotions are gated.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from running_loop import RunningLoop
from sampled_opponents import draws_of

from app.controllers.fold import Fold
from app.controllers.league_keeper import LeagueKeeper
from app.events import (
    CheckpointAdded,
    EvaluationCompleted,
    Event,
    MatchmakingUpdated,
    ModelPromoted,
    OpponentSampled,
    Payload,
    SelfplayComplete,
    SelfplayRequested,
)
from app.league.league import League, fold_league
from app.store import FileStore, MissingBlob, Shard, get_shard

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


def shard_of_games_against_others(loop: RunningLoop) -> tuple[SelfplayComplete, Shard] | None:
    """Return the latest games against others whose shard still exists.

    A shard is deleted once its rows have been trained on.
    """
    store = FileStore(loop.folder / "store")
    for event in reversed(loop.events(SelfplayComplete)):
        with suppress(MissingBlob):
            if event.data.opponents:
                return event.data, get_shard(store, event.data.shard.key)
    return None


@pytest.mark.timeout(500)
def test_only_the_heros_seats_give_rows(loop):
    played, shard = loop.wait_for("games against others", lambda: shard_of_games_against_others(loop))
    request = lineups_asked_for(loop.events())[played.request_id]
    game = 0
    for lineup in request.lineups:
        for number in range(lineup.games):
            seats = set(shard.seat[shard.game == game].tolist())
            assert seats <= ({0, 1} if lineup.opponents == (played.shard.model,) else {number % 2})
            game += 1


@pytest.mark.timeout(500)
def test_promotions_are_gated(events):
    gates = {data.model for data in told(events, EvaluationCompleted) if data.purpose == "gate"}
    later = [data for data in told(events, ModelPromoted) if data.previous is not None]
    assert later
    for promotion in later:
        assert promotion.model in gates
        assert promotion.evidence.games > 0
        assert promotion.evidence.value > promotion.evidence.threshold


@pytest.mark.timeout(500)
def test_the_keepers_league_follows_from_the_journal(events):
    fold = Fold((LeagueKeeper,))
    fold.feed(events)
    (row,) = fold.rows(LeagueKeeper.name).values()
    league = League().with_baselines(["random"])
    for event in events:
        if event.subject:
            league = fold_league(league, event, fold.settings.league.admission)
    assert {*league.agents} <= {*row.league.agents}
    last = told(events, MatchmakingUpdated)[-1]
    assert sum(pick.probability for pick in last.picks) == pytest.approx(1)
