"""Audits: ratings that are right or wrong, and cycles such as rock, paper, scissors."""

from itertools import combinations

import numpy as np
import pytest
from independent_games import of_games

from flyball.app.core import Elo, expected_score
from flyball.app.league.audit import Audit, audit, find_cycle
from flyball.app.league.bradley_terry import fit_bradley_terry
from flyball.app.league.pool import rate
from flyball.app.league.ratings import Estimate
from flyball.app.league.totals import PairTotals

STRENGTHS = {f"model {number:02d}": 40.0 * number for number in range(12)}
GAMES = 400


def played(games: int = GAMES) -> list[PairTotals]:
    """Return a round robin that went as the strengths have it."""
    pairs = []
    for one, other in combinations(STRENGTHS, 2):
        won = round(games * expected_score(STRENGTHS[one] - STRENGTHS[other]))
        pairs.append(of_games(one, other, won, 0, games - won))
    return pairs


def audited(factor: float = 1.0, shift: float = 0.0, stderr: float = 15.0) -> Audit:
    published = {name: Estimate(Elo(factor * elo + shift), stderr) for name, elo in STRENGTHS.items()}
    return audit(published, played())


def test_right_ratings_pass_an_audit_wherever_their_zero_is():
    for shift in (0.0, 700.0):
        found = audited(shift=shift)
        assert found.rms < 5
        assert found.coverage == 1
        assert found.ordered == found.apart > 30


def test_audit_finds_stretched_reversed_and_too_certain():
    found = audited(factor=1.5)
    assert found.rms == pytest.approx(0.5 * 138, rel=0.1)
    assert found.coverage < 0.5
    assert found.ordered == found.apart
    assert abs(found.members[0].error) == max(abs(member.error) for member in found.members)
    assert audited(factor=-1.0).ordered == 0
    names = list(STRENGTHS)
    off = {name: Estimate(Elo(elo + 60.0 * (name == names[5])), 1.0) for name, elo in STRENGTHS.items()}
    found = audit(off, played())
    assert not found.members[0].covered
    assert (found.members[0].agent, round(found.members[0].error / 55)) == (names[5], 1)
    published = {name: Estimate(Elo(elo), 15.0) for name, elo in STRENGTHS.items()}
    assert audit(published, played(10)).apart < audit(published, played()).apart


def test_errors_are_independent_and_the_anchor_has_its_own():
    ratings = rate(played(), anchors={})
    alone = ratings.comparable()
    for one, other in combinations(STRENGTHS, 2):
        both = (alone[one].stderr ** 2 + alone[other].stderr ** 2) ** 0.5
        assert both == pytest.approx(ratings.difference(one, other).stderr, rel=0.15)
    few = of_games("model 00", "random", 5, 0, 5)
    alone = fit_bradley_terry([few, *played()]).comparable()
    assert alone["random"].elo == 0
    assert alone["random"].stderr > 80
    assert all(alone[name].stderr < 20 for name in STRENGTHS)


NAMES = ("random", *"abcdefgh")


def league(
    games: int, seed: int, beats: dict[tuple[str, str], float] | None = None, draws: float = 0.0
) -> list[PairTotals]:
    """Play everybody against everybody."""
    rng = np.random.default_rng(seed)
    truth = dict(zip(NAMES, [0.0, *rng.normal(200, 150, len(NAMES) - 1)], strict=True))
    truth |= {name: 200.0 for pair in beats or {} for name in pair}
    pairs = []
    for a, b in combinations(NAMES, 2):
        score = (beats or {}).get((a, b), expected_score(truth[a] - truth[b]))
        drawn = draws * min(score, 1 - score)
        won, tied, lost = rng.multinomial(games, [score - drawn / 2, drawn, 1 - score - drawn / 2])
        pairs.append(of_games(a, b, won, tied, lost))
    return pairs


CYCLE = {("b", "e"): 0.65, ("e", "g"): 0.65, ("b", "g"): 0.35}
"""b beats e, e beats g, g beats b."""


@pytest.mark.parametrize("draws", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(10))
def test_a_planted_cycle_is_found(seed, draws) -> None:
    found = find_cycle(league(400, seed, CYCLE, draws))
    assert found is not None
    assert found.agents == ("b", "e", "g")
    assert found.scores == pytest.approx((0.65, 0.65, 0.65), abs=0.08)
    assert found.p_value <= 0.05


def test_cycles_need_certain_edges() -> None:
    even = {**CYCLE, ("b", "g"): 0.5}
    alarms = sum(find_cycle(league(400, seed, even)) is not None for seed in range(200))
    assert alarms <= 0.05 * 200
    equals = dict.fromkeys(combinations(NAMES, 2), 0.5)
    alarms = sum(find_cycle(league(100, seed, equals)) is not None for seed in range(300))
    assert alarms <= 3
    assert not any(find_cycle(league(100, seed)) for seed in range(300))


def test_clear_cycles_need_enough_games() -> None:
    clear = [of_games(a, b, 4, 0, 0) for a, b in ("ab", "bc", "ca")]
    assert find_cycle(clear) is None
    many = [of_games(a, b, 40, 0, 0) for a, b in ("ab", "bc", "ca")]
    assert find_cycle(many).agents == ("a", "b", "c")
    pairs = [of_games(a, b, 70, 0, 30) for a, b in ("de", "ef", "fd")]
    pairs += [of_games(a, b, 90, 0, 10) for a, b in ("bc", "ca", "ab")]
    found = find_cycle(pairs)
    assert (found.agents, found.scores) == (("a", "b", "c"), (0.9, 0.9, 0.9))
    assert find_cycle([]) is None
