"""A league folded from its keeper's events is the keeper's own."""

from functools import cache

import pytest
from generated_run import generated, hasty

from flyball.app.controllers import FeedbackFold
from flyball.app.controllers.fold import Fold
from flyball.app.controllers.league_keeper import LeagueKeeper
from flyball.app.events import CheckpointAdded, CheckpointRetired, ModelRolledBack
from flyball.app.league.league import LEAGUE_READS, League, fold_league

SCHEDULE = {"recent_every": 1, "recent_for": 5, "anchor_every": 7, "capacity": 7, "lasting_elo": 200}
SETTINGS = hasty().replace(league=hasty().league.model_validate({"admission": SCHEDULE}))


@cache
def history(seed: int):
    """Return a generated run with short leagues, full of troubles. It ends where nothing of the league is under way."""
    events = list(generated(3_000, seed=seed, settings=SETTINGS, trouble=10))
    recorded = {event.id for event in events}
    concluded = Fold((LeagueKeeper,)).feed(events).conclusions
    end = min((one.position for one in concluded if one.envelope.id not in recorded), default=len(events) + 1)
    return events[: end - 1]


def keepers_rows(events):
    fold = Fold((LeagueKeeper,))
    fold.feed(events)
    return fold.rows(LeagueKeeper.name)


def timeless(league: League) -> League:
    """Return a league without the times at which its members entered.

    Such a time is that of an event, or of its cause.
    """
    agents = {name: agent.replace(created_us=None) for name, agent in league.agents.items()}
    return league.replace(agents=agents)


@pytest.mark.parametrize("seed", range(4))
def test_the_league_folded_from_the_journal_is_the_keepers(seed):
    events = history(seed)
    for key, row in keepers_rows(events).items():
        league = League().with_baselines(SETTINGS.config(key).builtins)
        for event in events:
            if event.subject == key and type(event.data) in LEAGUE_READS:
                league = fold_league(league, event, SETTINGS.league.admission)
        assert timeless(league) == timeless(row.league)


@pytest.mark.parametrize("seed", range(4))
def test_keeper_has_nothing_left_to_decide_after_any_event(seed):
    configured, *events = history(seed)
    fold = Fold((LeagueKeeper,))
    fold.feed((configured,))
    for event in events:
        if type(event.data) in LeagueKeeper.reads | FeedbackFold.reads:
            fold.feed((event,))
            assert fold.feed((configured,)).conclusions == []


def test_the_histories_tell_of_every_kind_of_change():
    events = [event for seed in range(4) for event in history(seed)]
    assert {event.data.reason for event in events if isinstance(event.data, CheckpointRetired)} >= {
        "expired",
        "evicted",
        "rolled_back",
    }
    assert any(isinstance(event.data, ModelRolledBack) for event in events)
    roles = {role for event in events if isinstance(event.data, CheckpointAdded) for role in event.data.roles}
    assert roles == {"recent", "anchor", "elite", "lasting"}


@pytest.mark.parametrize("seed", range(4))
def test_nobody_enters_twice_nor_leaves_without_having_entered(seed):
    for key in keepers_rows(history(seed)):
        active = set()
        for event in history(seed):
            if event.subject != key:
                continue
            match event.data:
                case CheckpointAdded(model=model):
                    assert model not in active
                    active.add(model)
                case CheckpointRetired(model=model):
                    assert model in active
                    active.remove(model)
        assert len(active) <= SCHEDULE["capacity"] + 20, "anchors and elites alone may exceed it"
