"""Admission to a league and retention."""

import pytest
from leagues import checkpoint, league_of, model

from flyball.app.config import AdmissionSettings
from flyball.app.league.admission import admission, retirements

SCHEDULE = AdmissionSettings(elite_margin=0, founders=1)


def run(steps, elo=lambda step: 0.0, settings=SCHEDULE, champion=None):
    league = league_of(champion=champion)
    for step in steps:
        roles = admission(step, elo(step), league, settings)
        if roles:
            league = league.with_agent(checkpoint(step, elo(step), roles=roles))
            for retirement in retirements(league, settings):
                league = league.without(retirement.agent.id)
    return league


def steps_of(league):
    return [agent.step for agent in league.checkpoints]


def test_a_thousand_steps_leave_20_checkpoints_not_101() -> None:
    league = run(range(1001))
    assert steps_of(league) == [*range(0, 901, 100), *range(910, 1001, 10)]
    assert len(league.checkpoints) == 20
    assert len(league.agents) == 101 + 1  # all that ever entered are known, and the random bot


@pytest.mark.parametrize(
    ("step", "elo", "roles"),
    [
        (10, 0.0, ("recent",)),
        (15, 0.0, ()),
        (100, 0.0, ("recent", "anchor")),
        (15, 50.1, ("elite",)),
        (15, 50.0, ()),
        (15, None, ()),
        (200, 51.0, ("recent", "anchor", "elite")),
    ],
)
def test_roles_of_a_new_checkpoint(step, elo, roles) -> None:
    league = league_of(checkpoint(0, 50.0, roles=("anchor",)))
    assert admission(step, elo, league, SCHEDULE) == roles


def test_first_checkpoints_enter_whatever_their_step() -> None:
    assert admission(37, None, league_of(), SCHEDULE) == ("recent",)
    assert steps_of(run([37, *range(40, 141)])) == [*range(50, 141, 10)]
    settings = AdmissionSettings()
    league = run([0, 1, 2, 3], settings=settings)
    assert steps_of(league) == [0, 1]
    assert admission(5, 0.0, league.without(model(0)), settings) == ("recent",)
    league = league_of(checkpoint(500, roles=("recent",))).without(model(500))
    assert admission(37, None, league, SCHEDULE) == ("recent",)
    assert retirements(league.with_agent(checkpoint(37, roles=("recent",))), SCHEDULE) == ()


def test_late_checkpoint_may_be_an_anchor_but_no_recent() -> None:
    league = league_of(checkpoint(500, 0.0, roles=("anchor",)))
    assert admission(410, 0.0, league, SCHEDULE) == ("recent",)
    assert admission(390, 0.0, league, SCHEDULE) == ()
    assert admission(300, 0.0, league, SCHEDULE) == ("anchor",)


def test_elite_beats_the_best_by_the_margin_and_stays_for_ever() -> None:
    settings = AdmissionSettings(elite_margin=30, founders=1)
    league = run(range(1, 401), elo=lambda step: min(step, 95) * 1.0, settings=settings)
    elites = [agent.step for agent in league.checkpoints if "elite" in agent.roles]
    assert elites == [2, 33, 64, 95]  # step 1 is no elite; then each is 31 above the elite before it
    assert set(steps_of(league)) == {*elites, 100, 200, 300, *range(310, 401, 10)}


def test_the_current_model_and_the_last_good_one_do_not_expire() -> None:
    recents = (checkpoint(step, 0.0, roles=("recent",)) for step in (10, 20, 30))
    league = league_of(*recents, checkpoint(500, 0.0, roles=("anchor",)))
    assert [r.agent.step for r in retirements(league, SCHEDULE)] == [10, 20, 30]
    guarded = league.replace(champion=model(10), last_good=model(30))
    assert [(r.agent.step, r.reason) for r in retirements(guarded, SCHEDULE)] == [(20, "expired")]


def test_capacity_exceeded_evicts_only_the_oldest_recents() -> None:
    settings = AdmissionSettings(capacity=3, recent_for=1000)
    roles = [("anchor",), ("recent",), ("elite",), ("recent",), ("recent",), ("recent", "anchor")]
    league = league_of(*(checkpoint(step, 0.0, roles=role) for step, role in enumerate(roles)), champion=model(1))
    assert [(r.agent.step, r.reason) for r in retirements(league, settings)] == [(3, "evicted"), (4, "evicted")]
    left = league.without(model(3)).without(model(4))
    assert retirements(left, settings) == ()  # four, and all of them stay


def test_league_knows_lineages_and_its_best() -> None:
    league = league_of(checkpoint(1, parent=0), checkpoint(2, parent=1), checkpoint(3, parent=2)).without(model(2))
    assert league.lineage(checkpoint(9, parent=3)) == (model(3), model(2), model(1), model(0))
    assert league.lineage(checkpoint(9)) == ()
    league = league_of(checkpoint(1, 10.0), checkpoint(2, 30.0), checkpoint(3, 30.0), checkpoint(4))
    assert league.best is not None
    assert league.best.step == 2
    assert league.without(model(2)).best.step == 3
    assert league_of(checkpoint(4)).best is None


def test_lasting_anchors_are_300_elo_apart_and_stay() -> None:
    league = league_of(checkpoint(0, 0.0, roles=("anchor",)))
    assert "lasting" not in admission(5, 299.0, league, SCHEDULE)
    assert "lasting" in admission(5, 300.0, league, SCHEDULE)
    grown = league.with_agent(checkpoint(5, 420.0, roles=("lasting",))).with_agent(checkpoint(6, 900.0))
    assert "lasting" not in admission(7, 719.0, grown, SCHEDULE)
    assert "lasting" in admission(7, 721.0, grown, SCHEDULE)
    assert "lasting" not in admission(7, None, grown, SCHEDULE)
    assert "lasting" in admission(7, 300.0, grown.without(model(5)), SCHEDULE), "a rollback took the anchor along"
    league = league_of(checkpoint(5, 420.0, roles=("lasting",)), checkpoint(2000, 430.0, roles=("recent",)))
    assert [one.agent.step for one in retirements(league, AdmissionSettings(capacity=1))] == [2000]
