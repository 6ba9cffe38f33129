"""Checks of ratings: an independent round robin, and a cycle search.

Ratings cannot show a cycle: they may rise while a league runs in circles, as in rock, paper, scissors.
"""

from collections.abc import Iterable, Mapping
from math import hypot, sqrt
from typing import NamedTuple

import numpy as np

from flyball.app.core import Elo
from flyball.app.core.statistics import Z_95
from flyball.app.league.bradley_terry import fit_bradley_terry
from flyball.app.league.pool import rate
from flyball.app.league.ratings import Estimate, Ratings
from flyball.app.league.totals import PairTotals, total

APART_ELO = 60.0  # least difference at which the order of two published ratings is judged


class AuditedMember(NamedTuple):
    """A member's published rating, and its rating by the round robin."""

    agent: str
    published: Estimate
    measured: Estimate  # by the round robin, on the published scale

    @property
    def error(self) -> float:
        """Published rating minus the round robin's, Elo."""
        return self.published.elo - self.measured.elo

    @property
    def covered(self) -> bool:
        """True if the two ratings agree within a 95% interval. The interval includes the round robin's own error."""
        return abs(self.error) <= Z_95 * hypot(self.published.stderr, self.measured.stderr)


class Audit(NamedTuple):
    """The errors of published ratings."""

    members: tuple[AuditedMember, ...]  # the worst error first
    rms: float  # root mean square of their errors, Elo
    coverage: float  # share of the members whose two ratings agree
    apart: int  # pairs of members that are certainly at least ``APART_ELO`` apart, by the round robin
    ordered: int  # how many of these pairs are published in the right order
    # ``rms`` from a fit without misfit, in which one-sided games count in full although they compress the scale
    equal_weights_rms: float


def audit(published: Mapping[str, Estimate], played: Iterable[PairTotals]) -> Audit:
    """Compare published ratings with those from the members' round robin.

    The round robin has no zero, so both scales are aligned by their means over the members that played. The random
    bot's place on the scale moves all learned models alike, and is not judged here.
    """
    pairs = total(played)
    truth = rate(pairs, anchors={})
    true_ratings, (shift, rms) = truth.comparable(), _alignment(published, truth)
    members = [
        AuditedMember(
            agent, published[agent], Estimate(Elo(true_ratings[agent].elo + shift), true_ratings[agent].stderr)
        )
        for agent in truth.agents
    ]
    ordered = [
        published[first].elo > published[second].elo
        for first in truth.agents
        for second in truth.agents
        if truth.difference(first, second).interval()[0] >= APART_ELO
    ]
    return Audit(
        members=tuple(sorted(members, key=lambda member: -abs(member.error))),
        rms=rms,
        coverage=sum(member.covered for member in members) / len(members),
        apart=len(ordered),
        ordered=sum(ordered),
        equal_weights_rms=_alignment(published, fit_bradley_terry(pairs, anchors={}))[1],
    )


def _alignment(published: Mapping[str, Estimate], truth: Ratings) -> tuple[float, float]:
    """Return the two ratings' mean difference, and the root mean square of the differences about it."""
    differences = [published[agent].elo - truth.rating(agent).elo for agent in truth.agents]
    shift = sum(differences) / len(differences)
    return shift, sqrt(sum((difference - shift) ** 2 for difference in differences) / len(differences))


class Cycle(NamedTuple):
    """Three agents of which the first beats the second, the second the third, and the third the first."""

    agents: tuple[str, str, str]  # rotated so that the first name in sort order leads
    scores: tuple[float, float, float]  # mean scores: first against second, second against third, third against first
    p_value: float  # upper bound on the probability of a cycle this clear if there is no true cycle


def find_cycle(pairs: Iterable[PairTotals], significance: float = 0.05) -> Cycle | None:
    """Return the clearest significant cycle, or None.

    All three scores of a cycle are significantly above 1/2. An edge's p-value comes from Student's two-sided test of
    its mean score against 1/2. Observations are rotations, and the variance is that under the null hypothesis. Holm's
    correction covers all edges, so that with probability 1 - ``significance`` no edge is wrong, and no cycle either.
    Source: S. Holm, Scandinavian Journal of Statistics 6 (1979), 65-70.
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
