"""Audit of published ratings against an independent round robin."""

from collections.abc import Iterable, Mapping
from math import hypot, sqrt
from typing import NamedTuple

from app.core import Elo
from app.core.statistics import Z_95
from app.league.bradley_terry import fit_bradley_terry
from app.league.pool import rate
from app.league.ratings import Estimate, Ratings
from app.league.totals import PairTotals, total

APART_ELO = 60.0
"""Least difference at which the order of two published ratings is judged."""


class AuditedMember(NamedTuple):
    """One member's two ratings.

    Attributes:
        agent: its id.
        published: its rating as published.
        found: its rating by the round robin, on the published scale.
    """

    agent: str
    published: Estimate
    found: Estimate

    @property
    def error(self) -> float:
        """Published rating minus the round robin's, Elo."""
        return self.published.elo - self.found.elo

    @property
    def covered(self) -> bool:
        """True if the two agree within a 95% interval, the round robin's own error included."""
        return abs(self.error) <= Z_95 * hypot(self.published.stderr, self.found.stderr)


class Audit(NamedTuple):
    """The errors of published ratings.

    Attributes:
        members: those who played it, the worst error first.
        rms: root mean square of their errors, Elo.
        coverage: share of the members whose two ratings agree.
        apart: pairs of members that are certainly at least ``APART_ELO`` apart, by the round robin.
        ordered: how many of these pairs are published in the right order.
        equal_weights_rms: ``rms`` of a round robin fitted without misfit. One-sided games, which bend and compress a
            scale, count in full in it.
    """

    members: tuple[AuditedMember, ...]
    rms: float
    coverage: float
    apart: int
    ordered: int
    equal_weights_rms: float


def audit(published: Mapping[str, Estimate], played: Iterable[PairTotals]) -> Audit:
    """Compare published ratings with a fit of a round robin alone.

    The round robin has no zero, so both scales are aligned by their means over the members that played. Where the
    random bot is placed moves all ratings of learned models alike, and is not judged here.

    Args:
        published: ratings of all members that played.
        played: the games of members against each other, and no others.
    """
    pairs = total(played)
    truth = rate(pairs, anchors={})
    found, differences = truth.comparable(), _differences(published, truth)
    shift = sum(differences) / len(differences)
    members = [
        AuditedMember(agent, published[agent], Estimate(Elo(found[agent].elo + shift), found[agent].stderr))
        for agent in truth.agents
    ]
    ordered = [
        published[one].elo > published[other].elo
        for one in truth.agents
        for other in truth.agents
        if truth.difference(one, other).interval()[0] >= APART_ELO
    ]
    return Audit(
        members=tuple(sorted(members, key=lambda member: -abs(member.error))),
        rms=_rms(published, truth),
        coverage=sum(member.covered for member in members) / len(members),
        apart=len(ordered),
        ordered=sum(ordered),
        equal_weights_rms=_rms(published, fit_bradley_terry(pairs, anchors={})),
    )


def _differences(published: Mapping[str, Estimate], truth: Ratings) -> list[float]:
    return [published[agent].elo - truth.rating(agent).elo for agent in truth.agents]


def _rms(published: Mapping[str, Estimate], truth: Ratings) -> float:
    """Return the root mean square of the differences about their mean."""
    differences = _differences(published, truth)
    shift = sum(differences) / len(differences)
    return sqrt(sum((difference - shift) ** 2 for difference in differences) / len(differences))
