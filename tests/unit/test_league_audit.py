"""The audit of ratings that are right, stretched, swapped or too certain."""

from itertools import combinations

import pytest
from independent_games import of_games

from app.core import Elo, expected_score
from app.league.audit import Audit, audit
from app.league.bradley_terry import fit_bradley_terry
from app.league.pool import rate
from app.league.ratings import Estimate
from app.league.totals import PairTotals

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
