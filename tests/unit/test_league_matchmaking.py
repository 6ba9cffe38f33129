"""Matchmaking by category and by curves, selection of opponents, and pairings of background matches."""

from collections import Counter
from itertools import combinations
from math import sqrt

import pytest
from leagues import checkpoint, league_of, meet, model
from pydantic import ValidationError

from flyball.app.config import MATCHMAKING, LeagueSettings, MatchmakingSettings
from flyball.app.core import expected_score, lineups
from flyball.app.league.matchmaking import Pick, distribution, select, win_probability
from flyball.app.league.tournaments import placement, round_robin

BALANCED = MATCHMAKING["balanced"]
HERO = checkpoint(100, 1000.0, parent=40)


def full_league():
    """Return a league with opponents of all categories."""
    league = league_of(
        HERO,
        checkpoint(10, 500.0),
        checkpoint(20, 600.0),
        checkpoint(40, 400.0, parent=30),
        checkpoint(90, 950.0),
        checkpoint(95, 1100.0),
        checkpoint(99, 1500.0),
        baselines=("random", "heuristic"),
    )
    for winner in (10, 20):
        league = meet(league, model(40), model(winner), games=100, points=30)
    return meet(league, model(40), model(99), games=100, points=1)  # it still wins: not exploitable


def chi_squared_bound(degrees: int) -> float:
    """Return the 99.9% quantile, by Wilson and Hilferty."""
    return degrees * (1 - 2 / (9 * degrees) + 3.09 * sqrt(2 / (9 * degrees))) ** 3


def assert_drawn(counts, expected) -> None:
    """Compare counts with probabilities by a chi-squared test."""
    assert set(counts) <= set(expected)
    total, whole = counts.total(), sum(expected.values())
    shares = {key: total * p / whole for key, p in expected.items()}
    statistic = sum((counts[key] - share) ** 2 / share for key, share in shares.items())
    assert statistic < chi_squared_bound(len(expected) - 1)


def drawn(picks, count: int) -> list[Pick]:
    """Draw opponents at tables of two. Half of them have seeds of their own, as requests have."""
    apart = [lineups(picks, 1, seats=1, distinct=1, seed=seed)[0] for seed in range(count // 2)]
    return [pick for (pick,) in (*apart, *lineups(picks, count - count // 2, seats=1, distinct=1, seed=count))]


def test_the_categories_are_met_30_40_20_10() -> None:
    picks = distribution(full_league(), HERO, BALANCED)
    draws = drawn(picks, 20_000)
    assert_drawn(
        Counter(pick.category for pick in draws), {"mirror": 0.3, "peers": 0.4, "exploitable": 0.2, "baselines": 0.1}
    )
    expected = {("mirror", 100): 0.3, ("peers", 90): 0.2, ("peers", 95): 0.2}
    expected |= {("exploitable", 10): 0.1, ("exploitable", 20): 0.1}
    named = {Pick(category, model(step)): share for (category, step), share in expected.items()}
    named |= {Pick("baselines", name): 0.05 for name in ("random", "heuristic")}
    assert picks == pytest.approx(named)
    assert_drawn(Counter(draws), named)


def test_lineups_keep_shares_and_repeat_by_seed() -> None:
    picks = distribution(full_league(), HERO, BALANCED)
    seats = lineups(picks, 12_000, seats=6, distinct=2, seed=1)
    shares = {"mirror": 0.3, "peers": 0.4, "exploitable": 0.2, "baselines": 0.1}
    for seat in range(6):
        assert_drawn(Counter(one[seat].category for one in seats), shares)
    assert all(one[:3] == one[:1] * 3 and one[3:] == one[3:4] * 3 for one in seats)  # A A A B B B
    picks = distribution(full_league(), HERO, BALANCED)
    assert lineups(picks, 8, seats=3, distinct=3, seed=5) == lineups(picks, 8, seats=3, distinct=3, seed=5)
    assert len({lineups(picks, 1, seats=3, distinct=3, seed=seed)[0] for seed in range(50)}) > 25
    assert len(lineups(picks, 1, seats=3, distinct=8, seed=1)[0]) == 3
    assert lineups(picks, 0, seats=3, distinct=3, seed=5) == []


def test_empty_categories_share_out_in_proportion() -> None:
    alone = league_of(checkpoint(1, -500.0), checkpoint(2, -400.0))  # nobody near, nobody that used to win
    shares = Counter()
    for pick, share in distribution(alone, HERO, BALANCED).items():
        shares[pick.category] += share
    assert shares == pytest.approx({"mirror": 0.75, "baselines": 0.25})
    one = league_of(checkpoint(0, 1000.0), baselines=("random", "heuristic"))
    only = {Pick("baselines", "random"): 0.5, Pick("baselines", "heuristic"): 0.5}
    assert distribution(one, HERO, BALANCED) == only
    assert distribution(one, HERO, BALANCED.replace(baselines=0.0)) == only
    two = one.with_agent(checkpoint(10, 1000.0))
    assert Pick("mirror", HERO.id) in distribution(two, HERO, BALANCED)
    assert distribution(two.without(model(10)), HERO, BALANCED) == only  # the retired do not count
    mirror = {Pick("mirror", HERO.id): 1.0}
    assert distribution(league_of(baselines=()), HERO, BALANCED) == mirror
    nobody = MatchmakingSettings(mirror=0, peers=1, exploitable=0, baselines=0, cold_start=0)
    assert distribution(league_of(), HERO, nobody) == mirror


@pytest.mark.parametrize(
    ("games", "points", "hero_points", "found"),
    [
        (10, 4.5, 8, True),
        (9, 1, 8, False),  # too few games to say so
        (10, 5, 8, False),  # it did not lose
        (10, 4.5, 1, False),  # it would still lose: its own games say so, whatever the ratings
    ],
)
def test_exploitable_beat_an_ancestor_but_should_lose_to_hero(games, points, hero_points, found) -> None:
    league = league_of(checkpoint(40, 0.0), checkpoint(99, 900.0))
    league = meet(league, model(40), model(99), games, points)
    league = meet(league, HERO, model(99), 30, hero_points * 3)
    assert (Pick("exploitable", model(99)) in distribution(league, HERO, BALANCED)) is found


def test_exploitable_are_remembered_and_may_be_peers() -> None:
    league = meet(league_of(checkpoint(40, 0.0), checkpoint(99, 900.0), checkpoint(98)), model(40), model(99), 20, 1)
    assert Pick("exploitable", model(99)) in distribution(league.without(model(40)), HERO, BALANCED)
    stranger = HERO.replace(parent=model(98))
    assert Pick("exploitable", model(99)) not in distribution(league, stranger, BALANCED)
    league = league_of(checkpoint(40, 0.0), checkpoint(50, 900.0), baselines=("heuristic",))
    league = league.with_agent(league.agents["heuristic"].rated(950.0, 20.0, 100))
    league = meet(league, model(40), "heuristic", games=50, points=10)
    found = {pick.category for pick in distribution(league, HERO, BALANCED) if pick.agent == "heuristic"}
    assert found == {"peers", "exploitable", "baselines"}


@pytest.mark.parametrize(
    ("preset", "weight"), [("alphastar", lambda p: (1 - p) ** 2), ("alphastar_var", lambda p: p - p * p)]
)
def test_alphastars_mix_weighs_the_whole_league(preset, weight) -> None:
    league, settings = full_league(), MATCHMAKING[preset]
    others = [agent for agent in league.active if agent.id != HERO.id]
    weights = {agent.id: weight(win_probability(league, HERO, agent, settings.prior_games)) for agent in others}
    expected = {Pick("prioritised", name): 0.65 * w / sum(weights.values()) for name, w in weights.items()}
    picks = distribution(league, HERO, settings)
    assert picks == pytest.approx({Pick("mirror", HERO.id): 0.35, **expected})
    draws = Counter(drawn(picks, 20_000))
    likely = {pick: share for pick, share in picks.items() if share > 1e-3}  # the others are expected too seldom
    assert_drawn(Counter(pick for pick in draws.elements() if pick in likely), likely)


def test_win_probability_moves_from_ratings_to_games_played() -> None:
    league = league_of(checkpoint(99, 800.0))
    other = league.agents[model(99)]
    expected = expected_score(200)
    assert win_probability(league, HERO, other, 10) == pytest.approx(expected)
    few, many = (meet(league, HERO, other, games, 0) for games in (1, 1000))
    assert win_probability(few, HERO, other, 10) == pytest.approx(10 / 11 * expected)
    assert win_probability(many, HERO, other, 10) < 0.01
    assert win_probability(league, checkpoint(7), other, 10) == 0.5  # nobody knows


def test_default_mirrors_nine_games_of_ten() -> None:
    default = LeagueSettings().matchmaking
    assert default == MATCHMAKING["mostly_mirror"]
    assert distribution(full_league(), HERO, default)[Pick("mirror", HERO.id)] == pytest.approx(0.9)
    alone = league_of(HERO, baselines=("random", "heuristic"))
    assert distribution(alone, HERO, default)[Pick("mirror", HERO.id)] == pytest.approx(0.9 / 0.92)
    with pytest.raises(ValidationError, match="give at least one category a share"):
        MatchmakingSettings(mirror=0, peers=0, exploitable=0, baselines=0)


RATED = checkpoint(100, 1000.0)
LEAGUE = league_of(RATED, *(checkpoint(step, 10.0 * step) for step in (10, 20, 30, 40, 50)), baselines=("random", "x"))


def steps(agents):
    return [agent.step if agent.kind == "checkpoint" else agent.id for agent in agents]


def test_strategies_select_the_champion_or_the_best() -> None:
    assert steps(select(LEAGUE, "champion", RATED, 3)) == [50]
    crowned = LEAGUE.replace(champion=model(20))
    assert steps(select(crowned, "champion", RATED, 3)) == [20]
    assert steps(select(crowned.replace(champion=RATED.id), "champion", RATED)) == [50]
    assert steps(select(LEAGUE, "top_k", RATED, 3)) == [50, 40, 30]
    assert steps(select(LEAGUE, "top_k", RATED, 99)) == [50, 40, 30, 20, 10]
    assert steps(select(LEAGUE, "recent", RATED, 3)) == [50, 40, 30]
    assert steps(select(LEAGUE, "recent", RATED, 99)) == [50, 40, 30, 20, 10]
    for strategy in ("champion", "top_k", "random", "recent", "round_robin", "pfsp"):
        assert select(league_of(RATED, baselines=()), strategy, RATED, 3) == ()


def test_strategies_draw_evenly_or_in_turns() -> None:
    turns = [steps(select(LEAGUE, "round_robin", RATED, 3, seed=turn)) for turn in range(7)]
    assert turns[:3] == [["random", "x", 10], [20, 30, 40], [50, "random", "x"]]
    assert set(Counter(name for turn in turns for name in turn).values()) == {3}
    draws = [steps(select(LEAGUE, "random", RATED, 3, seed=seed)) for seed in range(3000)]
    assert all(len(set(one)) == 3 for one in draws)
    counts = Counter(name for one in draws for name in one)
    assert all(abs(count - 9000 / 7) < 4 * (9000 / 7 * 6 / 7) ** 0.5 for count in counts.values())
    assert sorted(steps(select(LEAGUE, "random", RATED, 99)), key=str) == sorted(
        ["random", "x", 10, 20, 30, 40, 50], key=str
    )


@pytest.mark.parametrize(("curve", "favourite"), [("hard", 5), ("var", 6)])
def test_pfsp_prefers_those_that_win_or_those_of_equal_strength(curve, favourite) -> None:
    league = league_of(checkpoint(5, 1300.0), checkpoint(6, 1000.0), checkpoint(7, 700.0), baselines=())
    counts = Counter(select(league, "pfsp", RATED, seed=seed, curve=curve)[0].step for seed in range(2000))
    assert counts.most_common(1)[0][0] == favourite
    assert counts[7] > 0


@pytest.mark.parametrize("players", range(8))
def test_round_robin_pairs_everybody_with_everybody_once(players) -> None:
    names = [f"p{number}" for number in range(players)]
    rounds = round_robin(names)
    met = [frozenset(pairing) for one in rounds for pairing in one]
    assert sorted(map(sorted, met)) == sorted(map(list, combinations(names, 2)))
    assert all(len({name for pairing in one for name in pairing}) == 2 * len(one) for one in rounds)
    assert all(len(one) == players // 2 for one in rounds)


def test_newcomer_is_paired_with_ladder_or_unmet_equals() -> None:
    pairings = placement(LEAGUE, checkpoint(200), 4)
    assert [pairing.first for pairing in pairings] == [model(200)] * 4
    assert [pairing.second for pairing in pairings] == [model(10), model(20), model(40), RATED.id]
    assert len(placement(LEAGUE, checkpoint(200), 99)) == 6, "built-in players are left out"
    newcomer = checkpoint(200, 390.0)
    assert [pairing.second for pairing in placement(LEAGUE, newcomer, 2)] == [model(40), model(30)]
    seen = meet(LEAGUE, newcomer, model(40), 100, 50)
    assert [pairing.second for pairing in placement(seen, newcomer, 2)] == [model(30), model(50)]
