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


class Audited(NamedTuple):
    """One member.

    Attributes:
        agent: its id.
        published: its rating as published.
        found: its rating by the round robin, on the published scale.
        covered: whether the two agree within a 95% interval, the round robin's own error included.
    """

    agent: str
    published: Estimate
    found: Estimate
    covered: bool

    @property
    def error(self) -> float:
        """Published rating minus the round robin's, Elo."""
        return self.published.elo - self.found.elo


class Audit(NamedTuple):
    """The errors of published ratings.

    Attributes:
        members: those who played it, the worst error first.
        rms: root mean square of their errors, Elo.
        coverage: share of the members whose two ratings agree.
        apart: pairs of members that are certainly at least ``APART_ELO`` apart, by the round robin.
        ordered: how many of these pairs are published in the right order.
        equal_weights_rms: ``rms`` of a round robin that is fitted without misfit: one-sided games, which bend and
            compress a scale, count in it by their whole number.
    """

    members: tuple[Audited, ...]
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
    found, shift = truth.comparable(), _shift(published, truth)
    members = tuple(_audited(agent, published[agent], found[agent], shift) for agent in truth.agents)
    apart = [(one, other) for one in truth.agents for other in truth.agents if _apart(truth.difference(one, other))]
    return Audit(
        members=tuple(sorted(members, key=lambda member: -abs(member.error))),
        rms=_rms(published, truth),
        coverage=sum(member.covered for member in members) / len(members),
        apart=len(apart),
        ordered=sum(published[one].elo > published[other].elo for one, other in apart),
        equal_weights_rms=_rms(published, fit_bradley_terry(pairs, anchors={})),
    )


def _shift(published: Mapping[str, Estimate], truth: Ratings) -> float:
    return sum(published[agent].elo - elo for agent, elo in zip(truth.agents, truth.elo, strict=True)) / len(truth.elo)


def _rms(published: Mapping[str, Estimate], truth: Ratings) -> float:
    shift = _shift(published, truth)
    errors = [published[agent].elo - elo - shift for agent, elo in zip(truth.agents, truth.elo, strict=True)]
    return sqrt(sum(error**2 for error in errors) / len(errors))


def _audited(agent: str, published: Estimate, found: Estimate, shift: float) -> Audited:
    moved = Estimate(Elo(found.elo + shift), found.stderr)
    within = Z_95 * hypot(published.stderr, found.stderr)
    return Audited(agent, published, moved, abs(published.elo - moved.elo) <= within)


def _apart(difference: Estimate) -> bool:
    return difference.interval()[0] >= APART_ELO
