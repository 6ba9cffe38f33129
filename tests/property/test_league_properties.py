"""Properties of every league, hero and seed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from independent_games import of_games
from league_strategies import heroes, leagues
from leagues import checkpoint, model

from flyball.app.config import MATCHMAKING, AdmissionSettings, MatchmakingSettings
from flyball.app.core import lineups
from flyball.app.league.admission import admission, retirements
from flyball.app.league.league import League
from flyball.app.league.matchmaking import STRATEGIES, distribution, select, win_probability
from flyball.app.league.tournaments import placement

SHARE = st.sampled_from([0.0, 0.1, 0.4, 1.0])
MIXES = st.sampled_from(list(MATCHMAKING.values())) | st.builds(
    MatchmakingSettings,
    mirror=st.just(0.2),
    peers=SHARE,
    exploitable=SHARE,
    baselines=SHARE,
    prioritised=SHARE,
    curve=st.sampled_from(["even", "hard", "var"]),
    cold_start=st.integers(0, 3),
    lost_games=st.integers(1, 20),
)
SEEDS = st.integers(0, 2**63 - 1)
SCHEDULES = st.builds(
    AdmissionSettings,
    founders=st.integers(1, 4),
    recent_every=st.integers(1, 20),
    recent_for=st.integers(1, 200),
    anchor_every=st.integers(1, 100),
    capacity=st.integers(1, 10),
)


@given(leagues(), MIXES, SEEDS, st.data())
def test_probabilities_sum_to_one_and_only_the_active_are_met(league, mix, seed, data) -> None:
    hero = data.draw(heroes(league))
    picks = distribution(league, hero, mix)
    assert sum(picks.values()) == pytest.approx(1)
    assert min(picks.values()) > 0
    for pick in picks:
        assert (pick.category == "mirror") == (pick.agent == hero.id)
        assert pick.category == "mirror" or not league.agents[pick.agent].retired
    seats, distinct = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    (drawn,) = lineups(picks, 1, seats=seats, distinct=distinct, seed=seed)
    assert len(drawn) == seats
    assert len(set(drawn)) <= distinct
    assert set(drawn) <= set(picks)


@pytest.mark.parametrize("strategy", list(STRATEGIES))
@given(leagues(), st.integers(1, 12), SEEDS, st.data())
def test_every_strategy_selects_different_active_others(strategy, league, count, seed, data) -> None:
    hero = data.draw(heroes(league))
    curve = data.draw(st.sampled_from(["even", "hard", "var"]))
    chosen = select(league, strategy, hero, count, seed=seed, curve=curve)
    assert len(chosen) <= count
    assert len({agent.id for agent in chosen}) == len(chosen)
    assert all(not agent.retired and agent.id != hero.id and agent == league.agents[agent.id] for agent in chosen)
    assert chosen == select(league, strategy, hero, count, seed=seed, curve=curve)
    if strategy in ("random", "round_robin"):
        assert len(chosen) == min(count, sum(agent.id != hero.id for agent in league.active))


@given(leagues(), st.data())
def test_what_one_expects_the_other_does_not(league, data) -> None:
    one, other = data.draw(heroes(league)), data.draw(heroes(league))
    p, q = win_probability(league, one, other, 10), win_probability(league, other, one, 10)
    assert 0 <= p <= 1
    assert p + q == pytest.approx(1)


@given(leagues(), SCHEDULES, st.data())
def test_who_is_protected_never_leaves(league, schedule, data) -> None:
    leaving = retirements(league, schedule)
    for agent, _ in leaving:
        assert agent.kind == "checkpoint"
        assert not agent.retired
        assert not {"anchor", "elite"} & {*agent.roles}
        assert agent.id not in (league.champion, league.last_good)
    left = league
    for agent, _ in leaving:
        left = left.without(agent.id)
    assert retirements(left, schedule) == ()
    over = len(left.checkpoints) - schedule.capacity
    if over > 0:  # every other checkpoint is permanent or protected
        assert all(agent.permanent or agent.id in (league.champion, league.last_good) for agent in left.checkpoints)


@given(leagues(), SCHEDULES, st.integers(0, 400), st.floats(-100, 100))
def test_entered_checkpoint_leaves_at_once_only_if_evicted(league, schedule, step, elo) -> None:
    roles = admission(step, elo, league, schedule)
    if not roles:
        return
    entered = league.with_agent(checkpoint(step, elo, roles=roles).replace(id=model(998)))
    reasons = {retirement.reason for retirement in retirements(entered, schedule) if retirement.agent.id == model(998)}
    assert reasons <= {"evicted"}


@given(leagues(), st.lists(st.tuples(st.integers(1, 300), st.integers(0, 600)), min_size=1, max_size=5))
def test_games_are_seen_from_both_sides(league, played) -> None:
    before = league.between("a", "b")
    assert before is None
    for number, (games, halves) in enumerate(played):
        points = min(games, halves / 2)
        one, other, seen = ("a", "b", points) if number % 2 else ("b", "a", games - points)
        league = league.with_games(of_games(one, other, seen, 0, games - seen))
    total = sum(games for games, _ in played)
    points = sum(min(games, halves / 2) for games, halves in played)
    mine, theirs = league.between("a", "b"), league.between("b", "a")
    assert (mine.games, theirs.games) == (total, total)
    assert (mine.first, theirs.first) == ("a", "b")
    assert mine.score == pytest.approx(points)
    assert mine.score + theirs.score == pytest.approx(total)


@given(leagues(), st.integers(1, 6), st.data())
def test_pairings_are_of_two_active_checkpoints(league, count, data) -> None:
    newcomer = data.draw(heroes(league))
    active = {agent.id for agent in league.checkpoints}
    placed = placement(league, newcomer, count)
    assert len(placed) == min(count, len(active - {newcomer.id}))
    assert len({pairing.second for pairing in placed}) == len(placed)
    assert all(pairing.first == newcomer.id and pairing.second in active - {newcomer.id} for pairing in placed)


@given(leagues())
def test_a_league_is_lossless_json(league) -> None:
    assert League.from_json(league.to_json()) == league


@given(leagues(), st.integers(0, 400))
def test_forgetting_keeps_the_active_and_their_games(league, step) -> None:
    left = league.without_retired(step)
    assert left.active == league.active
    for one in league.active:
        for other in league.active:
            assert left.between(one.id, other.id) == league.between(one.id, other.id)
    assert left.without_retired(step) == left
