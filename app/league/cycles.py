"""Cycles: three agents of which each beats the next.

A rating cannot show rock, paper, scissors. A league whose ratings rise while it runs in circles is found here.
"""

from collections.abc import Iterable
from math import sqrt
from typing import NamedTuple

import numpy as np

from app.league.totals import PairTotals, total


class Cycle(NamedTuple):
    """The first agent beats the second, the second the third, the third the first.

    Attributes:
        agents: all three, the one first in order of names first.
        scores: mean scores of the first against the second, the second against the third, the third against the first.
        p_value: at least the probability that chance makes any cycle look so clear where there is none.
    """

    agents: tuple[str, str, str]
    scores: tuple[float, float, float]
    p_value: float


def find_cycle(pairs: Iterable[PairTotals], significance: float = 0.05) -> Cycle | None:
    """Return the clearest cycle, if each of its three scores is above one half beyond chance; else ``None``.

    An edge's p-value is that of Student's two-sided test of its mean score against 1/2, with the rotations as
    observations, at the variance under the null hypothesis. All edges together are corrected after Holm, so that with
    probability 1 - ``significance`` no edge is wrong, and then no cycle is. Source: S. Holm, Scandinavian Journal of
    Statistics 6 (1979), 65-70.
    """
    from scipy.special import stdtr

    merged = total(pairs)
    agents = sorted({agent for pair in merged for agent in (pair.first, pair.second)})
    index = {agent: number for number, agent in enumerate(agents)}
    scores, doubts = np.full((len(agents),) * 2, 0.5), np.ones((len(agents),) * 2)  # p-value of row beating column
    surpluses = [abs(pair.score - pair.games / 2) / sqrt(pair.dispersion * pair.games / 4) for pair in merged]
    p_values = [
        float(2 * stdtr(max(1, pair.rotations - 1), -surplus)) for pair, surplus in zip(merged, surpluses, strict=True)
    ]
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    scaled = np.array(p_values)[order] * np.arange(len(p_values), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    for pair, p_value in zip(merged, corrected, strict=True):
        first, second, mean = index[pair.first], index[pair.second], pair.score / pair.games
        scores[first, second], scores[second, first] = mean, 1 - mean
        winner, loser = (first, second) if mean > 0.5 else (second, first)
        doubts[winner, loser] = p_value

    clearest, cycle = 1.0, (0, 0, 0)
    for second in range(len(agents)):
        through = np.maximum(doubts[:, second][:, None], doubts[second][None, :])  # first beats second, second third
        edges = np.maximum(through, doubts.T)
        first, third = (int(number) for number in np.unravel_index(int(edges.argmin()), edges.shape))
        if edges[first, third] < clearest:
            clearest, cycle = float(edges[first, third]), (first, second, third)
    if clearest > significance:
        return None
    lowest = cycle.index(min(cycle))
    a, b, c = cycle[lowest], cycle[lowest - 2], cycle[lowest - 1]
    means = (float(scores[a, b]), float(scores[b, c]), float(scores[c, a]))
    return Cycle((agents[a], agents[b], agents[c]), means, clearest)
