"""Rock, paper, scissors: planted cycles are found, and no others."""

from itertools import combinations

import numpy as np
import pytest
from independent_games import of_games

from app.core import expected_score
from app.league.audit import find_cycle
from app.league.totals import PairTotals

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


def test_league_without_a_cycle_raises_no_alarm() -> None:
    """Equals are the hardest case. In each league 84 triples have the chance to look like cycles."""
    equals = dict.fromkeys(combinations(NAMES, 2), 0.5)
    alarms = sum(find_cycle(league(100, seed, equals)) is not None for seed in range(300))
    assert alarms <= 3
    assert not any(find_cycle(league(100, seed)) for seed in range(300))


def test_a_cycle_of_two_strong_edges_and_one_even_is_no_cycle() -> None:
    """The edge that may be chance prevents the alarm. At most 5% of such leagues raise one."""
    even = {**CYCLE, ("b", "g"): 0.5}
    alarms = sum(find_cycle(league(400, seed, even)) is not None for seed in range(200))
    assert alarms <= 0.05 * 200


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
