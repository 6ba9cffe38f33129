"""The league as it follows from the journal's events. Admissions, retirements, ratings and games are events."""

import pytest
from builders import EVIDENCE, recorded
from driving import KEY, match, rated, run_settings
from leagues import league_of, model

from flyball.app.config import AdmissionSettings
from flyball.app.core import Elo
from flyball.app.dashboard.pages.league import lineage_of
from flyball.app.events import (
    AgentRating,
    CheckpointAdded,
    CheckpointRetired,
    EloUpdated,
    ModelPromoted,
    ModelRolledBack,
    PromotionRejected,
    RegressionDetected,
)
from flyball.app.league.league import Agent, League, fold_league
from flyball.app.status.league import LeagueView

SCHEDULE = AdmissionSettings(remembered_for=200)


def fold(league, *payloads):
    for number, payload in enumerate(payloads, 1):
        league = fold_league(league, recorded(payload, number, "x_2p", seconds=(999 + number) / 1e6), SCHEDULE)
    return league


def added(step, elo=0.0, parent=None, roles=("recent",)):
    return CheckpointAdded(
        model=model(step), parent=parent, step=step, elo=Elo(elo), elo_stderr=20.0, games=300, roles=roles
    )


def retired(step):
    return CheckpointRetired(model=model(step), step=step, reason="expired")


def played(opponent, games, points, name="recent"):
    return match(points / games, games, name, model=opponent)


def evaluated(step, *matches, purpose="rating"):
    return rated(0.0, *matches, model=model(step), step=step).replace(purpose=purpose)


def updated(name, elo):
    return EloUpdated(ratings=(AgentRating(agent=name, elo=Elo(elo), elo_stderr=5.0, games=900, bound=None),))


def promoted(step):
    return ModelPromoted(model=model(step), previous=None, step=step, elo=Elo(0.0), evidence=EVIDENCE)


def test_admissions_and_ratings_change_what_is_known() -> None:
    league = fold(league_of(), added(10, 35.0, parent=model(0), roles=("recent", "elite")))
    known = {"elo": Elo(35.0), "elo_stderr": 20.0, "matches": 300, "created_us": 1000, "parent": model(0)}
    agent = Agent(id=model(10), kind="checkpoint", step=10, **known, roles=("recent", "elite"))
    assert (league.agents[model(10)], league.latest_step) == (agent, 10)
    league = fold(league_of(), added(10), updated(model(10), 70.0))
    agent = league.agents[model(10)]
    assert (agent.elo, agent.elo_stderr, agent.matches, agent.roles) == (70.0, 5.0, 900, ("recent",))
    assert fold(league, updated(model(11), 1.0)) == league


def test_retired_models_are_no_opponents_and_finally_forgotten() -> None:
    games = evaluated(20, played(model(10), 100, 60), played(None, 200, 190, name="random"))
    league = fold(League().with_baselines(["random"]), added(10), promoted(20), games, added(20), retired(10))
    assert [agent.id for agent in league.active] == ["random", model(20)]
    met = league.between(model(20), model(10))
    assert (met.games, met.score) == (100, 60)
    assert league.between("random", model(20)).score == 10
    later = fold(league, added(211))
    assert model(10) not in later.agents
    assert later.between(model(20), model(10)) is None
    assert later.between(model(20), "random") is not None


def test_games_count_for_members_alone() -> None:
    league = fold(
        league_of(),
        added(10),
        evaluated(20, played(model(10), 100, 60)),
        evaluated(20, played(model(10), 400, 0), purpose="gate"),
        evaluated(10, played(model(20), 50, 30)),
    )
    met = league.between(model(10), model(20))
    assert (met.first, met.second, met.games, met.score) == (model(10), model(20), 150, 70)
    assert met.rotations == 75
    games = evaluated(20, played(model(10), 100, 60))
    rejected = PromotionRejected(model=model(20), current=model(10), step=20, evidence=EVIDENCE)
    league = fold(league_of(), added(10), promoted(10))
    assert fold(league, games, rejected).between(model(20), model(10)) is None
    kept = fold(league, games, promoted(20))
    assert kept.between(model(20), model(10)) is not None
    assert fold(kept, promoted(30)).between(model(20), model(10)) is None


@pytest.mark.parametrize(("purpose", "games"), [("rating", 20), ("tournament", 20), ("retest", 20), ("gate", 0)])
def test_all_games_but_those_of_gates_count(record, purpose: str, games: int) -> None:
    games_of = evaluated(20, played(model(10), 20, 12), purpose=purpose)
    league = fold(league_of(), added(10), games_of)
    met = league.between(model(10), model(20))
    assert (met.games if met else 0) == games
    view = LeagueView()
    for data in (added(10), games_of):
        view.take(record(data, KEY), run_settings())
    assert sum(pair.games for pair in view.pairs) == games


def test_champion_that_is_no_member_is_drawn_with_its_parent(record) -> None:
    view = LeagueView()
    rated = evaluated(30, played(model(10), 100, 60), purpose="rating")
    for data in (added(10), promoted(10), promoted(20), rated, promoted(30)):
        view.take(record(data, KEY), run_settings())
    *_, champion = view.agents()
    assert (champion.id, champion.parent) == (model(30), model(10))
    assert view.members()[-1]["parent"] == model(10)
    drawing = lineage_of(view)
    assert drawing is not None
    points = {node.agent.id: node for node in drawing.nodes}
    assert points[model(30)].parent == (points[model(10)].x, points[model(10)].y)


def test_current_and_last_good_model_are_known() -> None:
    league = fold(league_of(), promoted(1), promoted(2), promoted(3))
    assert league.champion == model(3)
    alarm = RegressionDetected(
        model=model(3), last_good=model(1), elo_drop=60.0, severity="severe", games=100, opponent="random"
    )
    league = fold(league, alarm, ModelRolledBack(from_model=model(3), to_model=model(1), step=1, reason="it is worse"))
    assert (league.champion, league.last_good) == (model(1), model(1))
    undone = ModelRolledBack(from_model=model(1), to_model=model(0), step=0, reason="somebody wants it")
    assert fold(league, undone).last_good is None
