"""Opponents of an evaluation, and pairings of background matches."""

from collections import Counter
from itertools import combinations

import pytest
from leagues import checkpoint, league_of, meet, model

from app.league.matchmaking import select
from app.league.tournaments import placement, round_robin

HERO = checkpoint(100, 1000.0)
LEAGUE = league_of(HERO, *(checkpoint(step, 10.0 * step) for step in (10, 20, 30, 40, 50)), baselines=("random", "x"))


def steps(agents):
    return [agent.step if agent.kind == "checkpoint" else agent.id for agent in agents]


def test_strategies_select_the_champion_or_the_best() -> None:
    assert steps(select(LEAGUE, "champion", HERO, 3)) == [50]
    crowned = LEAGUE.replace(champion=model(20))
    assert steps(select(crowned, "champion", HERO, 3)) == [20]
    assert steps(select(crowned.replace(champion=HERO.id), "champion", HERO)) == [50]
    assert steps(select(LEAGUE, "top_k", HERO, 3)) == [50, 40, 30]
    assert steps(select(LEAGUE, "top_k", HERO, 99)) == [50, 40, 30, 20, 10]
    assert steps(select(LEAGUE, "recent", HERO, 3)) == [50, 40, 30]
    assert steps(select(LEAGUE, "recent", HERO, 99)) == [50, 40, 30, 20, 10]
    for strategy in ("champion", "top_k", "random", "recent", "round_robin", "pfsp"):
        assert select(league_of(HERO, baselines=()), strategy, HERO, 3) == ()


def test_strategies_draw_evenly_or_in_turns() -> None:
    turns = [steps(select(LEAGUE, "round_robin", HERO, 3, seed=turn)) for turn in range(7)]
    assert turns[:3] == [["random", "x", 10], [20, 30, 40], [50, "random", "x"]]
    assert set(Counter(name for turn in turns for name in turn).values()) == {3}
    draws = [steps(select(LEAGUE, "random", HERO, 3, seed=seed)) for seed in range(3000)]
    assert all(len(set(one)) == 3 for one in draws)
    counts = Counter(name for one in draws for name in one)
    assert all(abs(count - 9000 / 7) < 4 * (9000 / 7 * 6 / 7) ** 0.5 for count in counts.values())
    assert sorted(steps(select(LEAGUE, "random", HERO, 99)), key=str) == sorted(
        ["random", "x", 10, 20, 30, 40, 50], key=str
    )


@pytest.mark.parametrize(("curve", "favourite"), [("hard", 5), ("var", 6)])
def test_pfsp_prefers_those_that_win_or_those_of_equal_strength(curve, favourite) -> None:
    league = league_of(checkpoint(5, 1300.0), checkpoint(6, 1000.0), checkpoint(7, 700.0), baselines=())
    counts = Counter(select(league, "pfsp", HERO, seed=seed, curve=curve)[0].step for seed in range(2000))
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
    assert [pairing.one for pairing in pairings] == [model(200)] * 4
    assert [pairing.other for pairing in pairings] == ["random", model(20), model(40), HERO.id]
    assert len(placement(LEAGUE, checkpoint(200), 99)) == 8
    newcomer = checkpoint(200, 390.0)
    assert [pairing.other for pairing in placement(LEAGUE, newcomer, 2)] == [model(40), model(30)]
    seen = meet(LEAGUE, newcomer, model(40), 100, 50)
    assert [pairing.other for pairing in placement(seen, newcomer, 2)] == [model(30), model(50)]
