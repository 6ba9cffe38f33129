"""LeagueKeeper: promoted models enter by schedule, and leave by rule or rollback."""

import pytest
from builders import EVIDENCE, configured, rolled_back, training_of
from driving import KEY, Driven, match, rated, run_settings, trained
from leagues import model

from flyball.app.config import MATCHMAKING, AdmissionSettings, LeagueSettings
from flyball.app.controllers.league_keeper import LeagueKeeper
from flyball.app.core import Elo
from flyball.app.events import (
    CheckpointAdded,
    CheckpointRetired,
    MatchesRequested,
    MatchmakingUpdated,
    ModelPromoted,
    ModelRolledBack,
)
from flyball.app.league.matchmaking import distribution


def keeper_of(**schedule) -> Driven:
    """Return a keeper with these admission settings, by default one founder."""
    admission = AdmissionSettings.model_validate({"founders": 1, **schedule})
    settings = LeagueSettings(admission=admission, matchmaking=MATCHMAKING["balanced"])
    return Driven(LeagueKeeper, run_settings().replace(league=settings))


@pytest.fixture
def keeper():
    return keeper_of(recent_every=2, recent_for=6, anchor_every=10)


def promote(keeper: Driven, step: int, elo: float = 0.0, previous: int | None = None) -> list:
    keeper.feed(rated(elo, match(0.9, 200), model=model(step), step=step))
    return of_the_league(keeper.feed(promotion(step, elo, previous)))


def promotion(step: int, elo: float = 0.0, previous: int | None = None) -> ModelPromoted:
    before = None if previous is None else model(previous)
    return ModelPromoted(model=model(step), previous=before, step=step, elo=Elo(elo), evidence=EVIDENCE)


def of_the_league(said: list) -> list:
    """Return decisions about members, without matchmaking and requests for matches."""
    return [one for one in said if not isinstance(one, MatchesRequested | MatchmakingUpdated)]


def back(bad: int, good: int) -> ModelRolledBack:
    return rolled_back(model(bad), model(good), good)


def ladder(keeper: Driven, *steps: int, elo: float = 0.0) -> list:
    """Promote one model after the other; return what the last promotion leads to."""
    before, said = None, []
    for step in steps:
        said = promote(keeper, step, elo * step, before)
        before = step
    return said


CANDIDATE = rated(50.0, match(0.6, 100, "champion", model=model(0)), model=model(2), step=2)


def active(keeper: Driven) -> list[int]:
    return [agent.step for agent in keeper.row().league.checkpoints]


def test_first_promoted_model_enters_with_its_rated_games(keeper):
    (added,) = promote(keeper, 0, 0.0)
    assert isinstance(added, CheckpointAdded)
    assert (added.model, added.parent, added.games, added.roles) == (model(0), None, 200, ("recent", "anchor"))
    assert keeper.row().league.champion == model(0)
    assert [agent.id for agent in keeper.row().league.baselines] == ["random"]


def test_a_model_that_the_schedule_does_not_want_stays_out(keeper):
    promote(keeper, 0)
    assert promote(keeper, 1, 30.0, previous=0) == []
    assert keeper.feed(rated(900.0, match(0.9, 200), model=model(2), step=2)) == [], "it is not promoted"
    assert active(keeper) == [0]


def test_a_parent_is_the_nearest_ancestor_that_is_a_member(keeper):
    (added,) = ladder(keeper, 0, 1, 2)
    assert added.parent == model(0)
    (grandchild,) = promote(keeper, 4, previous=2)
    assert grandchild.parent == model(2)


def test_recents_leave_in_the_step_in_which_they_expire(keeper):
    added, retired = ladder(keeper, 0, 2, 4, 6, 8, 10)
    assert isinstance(added, CheckpointAdded)
    assert retired == CheckpointRetired(model=model(4), step=4, reason="expired")
    assert active(keeper) == [0, 6, 8, 10], "0 is an anchor, 2 had left before"


def test_above_the_capacity_the_oldest_leaves():
    _, retired = ladder(keeper_of(recent_every=1, anchor_every=100, capacity=2), 1, 2, 3)
    assert (retired.model, retired.reason) == (model(1), "evicted")


def test_rollback_retires_members_promoted_after_its_target(keeper):
    ladder(keeper, 0, 2, 4, 6)
    said = of_the_league(keeper.feed(back(6, 2)))
    assert [(one.step, one.reason) for one in said] == [(4, "rolled_back"), (6, "rolled_back")]
    assert active(keeper) == [0, 2]
    assert keeper.row().league.champion == model(2)
    assert keeper.feed(back(6, 2)) == [], "repeated, it counts once"
    added, *_ = promote(keeper, 8, previous=2)
    assert added.parent == model(2)
    (retired,) = of_the_league(keeper.feed(back(8, 99)))
    assert retired.model == model(8), "an unknown target retires only the bad model"


def test_a_model_that_nobody_has_rated_enters_when_it_is_rated(keeper):
    promote(keeper, 0)
    assert of_the_league(keeper.feed(promotion(2, 7.0, previous=0))) == []
    (added,) = of_the_league(keeper.feed(rated(40.0, match(0.9, 200), model=model(2), step=2)))
    assert (added.model, added.elo, added.parent) == (model(2), 40.0, model(0))
    assert keeper.feed(rated(50.0, match(0.9, 200), model=model(2), step=2)) == [], "once"


@pytest.mark.parametrize(("elo", "roles"), [(299.0, []), (300.0, [("recent", "elite", "lasting")])])
def test_gate_alone_admits_only_lasting_anchors(keeper, elo, roles):
    """A candidate without a gauntlet has its gate's rating, in matchmaking, too."""
    promote(keeper, 0)
    keeper.feed(training_of(model=model(0)))
    keeper.feed(trained(model(2), model(0), 2).replace(request_id=keeper.events[-1].id))
    said = of_the_league(keeper.feed(promotion(2, elo, previous=0)))
    assert [member.roles for member in said] == roles
    assert keeper.row().promoted[-1].elo == elo


def test_candidate_that_an_operator_promotes_enters_when_rated(keeper):
    promote(keeper, 0)
    keeper.feed(training_of(model=model(0)))
    keeper.feed(trained(model(2), model(0), 2).replace(request_id=keeper.events[-1].id))
    by_hand = promotion(2, 900.0, previous=0).replace(evidence=EVIDENCE.replace(games=0))
    assert of_the_league(keeper.feed(by_hand)) == []
    (added,) = of_the_league(keeper.feed(rated(40.0, match(0.9, 200), model=model(2), step=2)))
    assert (added.model, added.elo) == (model(2), 40.0)


def with_builtins(keeper: Driven, *names: str) -> Driven:
    """Return a keeper that goes on under settings with other built-in players."""
    config = keeper.settings.config(KEY).replace(builtins=names)
    other = Driven(LeagueKeeper, keeper.settings.replace(configs=(config,)))
    other.fold._rows[LeagueKeeper.name] |= {KEY: keeper.row()}
    return other


def test_the_built_in_players_are_those_of_the_settings(keeper):
    promote(keeper, 0)
    other = with_builtins(keeper, "random", "heuristic")
    promote(other, 2, previous=0)
    assert [agent.id for agent in other.row().league.baselines] == ["heuristic", "random"]


class TestMatchmaking:
    def test_promotion_decides_the_new_models_opponents(self, keeper):
        keeper.feed(rated(0.0, model=model(0), step=0))
        *_, decided = keeper.feed(promotion(0))
        assert decided.model == model(0)
        assert [(pick.category, pick.agent, pick.probability) for pick in decided.picks] == [("baselines", "random", 1)]

    def test_matchmaking_is_the_leagues_and_sums_to_one(self, keeper):
        ladder(keeper, 0, 2, 4, elo=10.0)
        decided, league = keeper.state().matchmaking, keeper.row().league
        hero = league.agents[model(4)]
        expected = distribution(league, hero, keeper.settings.league.matchmaking)
        assert {(pick.category, pick.agent): pick.probability for pick in decided.picks} == expected
        assert sum(pick.probability for pick in decided.picks) == pytest.approx(1)

    def test_a_candidates_games_change_nothing_but_who_is_there_does(self, keeper):
        promote(keeper, 0)
        assert keeper.feed(CANDIDATE, CANDIDATE) == []
        other = with_builtins(keeper, "random", "heuristic")
        (decided,) = other.feed(CANDIDATE)
        assert {pick.agent for pick in decided.picks} == {"random", "heuristic"}
        assert other.feed(CANDIDATE) == []

    def test_current_models_own_games_change_its_opponents(self, keeper):
        ladder(keeper, 0, 2, 4)
        beaten = keeper.feed(rated(0.0, match(0.1, 100, model=model(2)), model=model(0), step=0))
        (decided,) = keeper.feed(rated(0.0, match(0.9, 100, model=model(2)), model=model(4), step=4))
        assert beaten == []
        assert model(2) in {pick.agent for pick in decided.picks if pick.category == "exploitable"}

    def test_model_that_is_no_member_has_opponents_too(self, keeper):
        ladder(keeper, 0, 2)
        promote(keeper, 3, previous=1)
        decided = keeper.state().matchmaking
        assert decided.model == model(3)
        assert {pick.agent for pick in decided.picks} >= {model(0), model(2), model(3)}

    def test_matchmaking_after_a_rollback_is_the_restored_models(self, keeper):
        ladder(keeper, 0, 2, 4)
        *_, decided = keeper.feed(back(4, 2))
        assert decided.model == model(2)
        assert model(4) not in {pick.agent for pick in decided.picks}

    def test_other_settings_are_heeded_at_once(self, keeper):
        promote(keeper, 0)
        changed = configured(keeper.settings.replace(league=LeagueSettings(matchmaking=MATCHMAKING["mirror"])))
        (decided,) = keeper.feed(changed, key=None)
        assert [(pick.category, pick.agent) for pick in decided.picks] == [("mirror", model(0))]
        assert keeper.feed(changed, key=None) == []
