"""Paired comparison of two Hearts policies on the same deals.

Both policies get the same seats and opponents.

Four equal players average 6.5 points a hand at any strength. A seat's points scatter by 6.8 around that, mostly by
luck of the deal. So the same cards are dealt to the hero and to a reference policy, in every seat in turn. Each deal is
one observation, the mean difference over its seats, because only hands of different deals are independent.
"""

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flyball.app.config import Compute, FrozenModel, GameConfig, StoreName
from flyball.app.core import student
from flyball.app.engine import Report
from flyball.app.games import UnknownGame, open_table, own_hearts
from flyball.app.games.hearts.table import hand_points, moons
from flyball.app.job_specs import Columns, job
from flyball.app.learning.devices import games_at_once
from flyball.app.play.match_statistics import NoGames
from flyball.app.play.matches import IN_FLIGHT, MatchPlan, play_rotations
from flyball.app.play.players import PLAYERS, Player
from flyball.app.store import open_store

Floats = NDArray[np.float64]


class HandResults(Columns):
    """Results of a policy's hands, P for each deal. In the hands of a deal, the policy sits in seats 0, 1 … P - 1."""

    points: tuple[float, ...] = ()
    win_shares: tuple[float, ...] = Field(default=(), description="1 for the fewest points alone, else the part of it")
    moons: tuple[bool, ...] = Field(default=(), description="the policy shot the moon")


class Side(FrozenModel):
    """Mean results of one policy's hands."""

    points: float = Field(description="a hand")
    stderr: float = Field(ge=0, description="of them, from the deals")
    win_share: float = Field(ge=0, le=1, description="hands won, a tie split among those who share it")
    moon_rate: float = Field(ge=0, le=1)


class PairedStatistics(FrozenModel):
    """Comparison of a hero and a reference on the same deals. A negative difference favours the hero."""

    hands: int = Field(ge=4, description="of each of the two")
    deals: int = Field(ge=2)
    hero: Side
    reference: Side
    difference: float = Field(description="points a hand, the hero's less the reference's")
    stderr: float = Field(ge=0)
    lower: float = Field(description="of its 95% interval")
    upper: float
    p_value: float = Field(ge=0, le=1, description="two-sided, of no difference: Student's t over the deals")


def win_shares(points: NDArray[Any]) -> Floats:
    """Return each seat's share of the win [G, P]. The fewest ``points`` [G, P] win; a tie splits the win."""
    best = points == points.min(axis=1, keepdims=True)
    return np.asarray(best / best.sum(axis=1, keepdims=True), dtype=np.float64)


def compare_paired(hero: HandResults, reference: HandResults, players: int) -> PairedStatistics:
    """Compare two policies on the same deals in the same order, P hands each. Raises ``NoGames`` below two deals."""
    deals = len(hero.points) // players
    if deals < 2 or len(hero.points) != len(reference.points):
        raise NoGames(
            f"{len(hero.points)} and {len(reference.points)} hands of {players} seats cannot be compared.",
            hint=f"Play the same deals for both, {2 * players} hands at least.",
        )

    def by_deal(results: HandResults) -> Floats:
        return np.asarray(np.reshape(results.points, (deals, players)).mean(axis=1), dtype=np.float64)

    def side(results: HandResults) -> Side:
        points, stderr = _mean(by_deal(results))
        shares, shot = float(np.mean(results.win_shares)), float(np.mean(results.moons))
        return Side(points=points, stderr=stderr, win_share=shares, moon_rate=shot)

    mean, stderr = _mean(by_deal(hero) - by_deal(reference))
    reach, p_value = student(mean, stderr, deals - 1)
    return PairedStatistics(
        hands=len(hero.points),
        deals=deals,
        hero=side(hero),
        reference=side(reference),
        difference=mean,
        stderr=stderr,
        lower=mean - reach,
        upper=mean + reach,
        p_value=p_value,
    )


def _mean(values: Floats) -> tuple[float, float]:
    """Return the mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1)) / sqrt(len(values))


def single_hands(config: GameConfig) -> tuple[GameConfig, bool]:
    """Return the configuration with one hand a game, and its moon rule.

    The moon rule is true if shooting the moon changes the shooter's points rather than the others'. Raises
    ``UnknownGame`` for a game other than Flyball's own Hearts.
    """
    hearts = own_hearts(config)
    if hearts is None:
        raise UnknownGame(
            f"Points a hand are those of Flyball's own Hearts, as hearts_4p plays it, and {config.key} plays "
            f"{config.game!r}.",
            hint="--paired is for Hearts: leave it out. Every deal and opening is played in every seat without it too.",
        )
    rules = replace(hearts, hands=1)
    selfplay = config.selfplay.replace(rewards="terminal")
    return config.replace(game=rules.game, selfplay=selfplay), rules.moon_for_shooter


def play_hands(
    config: GameConfig, policy: Player, others: Player, plan: MatchPlan, in_flight: int | None = None
) -> HandResults:
    """Play single hands of Hearts; a rotation is one deal.

    A configured game of several hands is also played as single hands. Where ``policy`` and ``others`` are the same
    object, each deal is played once, and all seats count as the policy's. Deterministic on a CPU. Raises
    ``UnknownGame`` for a game other than Flyball's own Hearts.
    """
    config, moon_for_shooter = single_hands(config)
    if alone := policy is others:
        plan = replace(plan, games=plan.games // config.players, first=plan.first // config.players)
    seats = 1 if alone else config.players
    outcomes, heroes = play_rotations(config, policy, others, plan, seats, in_flight=in_flight)
    returns = outcomes.returns
    points = hand_points(returns, moon_for_shooter=moon_for_shooter)

    def own(values: NDArray[np.generic]) -> Any:
        return (values if alone else values[np.arange(len(values)), heroes]).ravel().tolist()

    return HandResults(points=own(points), win_shares=own(win_shares(points)), moons=own(moons(returns)))


class HandsSpec(Compute):
    """Arguments of ``hands``: deals of a policy against copies of another, named as in ``load_player``."""

    store: StoreName
    config: GameConfig
    policy: str
    others: str
    deals: int = Field(ge=1)
    first: int = Field(default=0, ge=0)
    seed: int = Field(ge=0)
    temperature: float = Field(ge=0)


@job
def hands(spec: HandsSpec, report: Report) -> HandResults:
    """Play the hands of a spec (a job). Raises as ``play_hands`` and ``load_player``."""
    store, config = open_store(spec.store), spec.config
    game, seats = open_table(config, 0).spec, config.players
    policy, others = (PLAYERS.load(store, player, game, spec, config) for player in (spec.policy, spec.others))
    plan = MatchPlan(spec.deals * seats, spec.seed, spec.temperature, first=spec.first * seats)
    results = play_hands(config, policy, others, plan, games_at_once(spec.device, IN_FLIGHT))
    report({"hands": len(results.points)})
    return results
