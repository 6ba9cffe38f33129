"""Hands of Hearts between one policy and three of another, every deal in every seat; see ``app.evaluation.paired``."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.arena.match import IN_FLIGHT
from app.config import GameConfig, Settings
from app.core import derive_seed
from app.engine import JsonObject, Report
from app.evaluation import HandResults, PairedStatistics, compare_paired, win_shares
from app.games import UnknownGame, open_table, own_hearts
from app.games.hearts.points import hand_points, moons
from app.selfplay import HERO, PLAYERS, Player, Rollout, Schedule
from app.store import FileStore

_OTHERS = 1


@dataclass(frozen=True, slots=True)
class HandsPlan:
    """Which deals are played, and how.

    Attributes:
        deals: each is played once with the policy in each seat.
        seed: of the deals and the players' choices. The same one gives any policies the same deals.
        temperature: of all players; 0 always takes the most probable card.
        first: number of the first deal; whatever parts it is played in, the hands are the same.
    """

    deals: int
    seed: int
    temperature: float = 0.0
    first: int = 0


def single_hands(config: GameConfig) -> tuple[GameConfig, bool]:
    """Return the configuration with one hand a game, and whether a moon counts for its shooter.

    Raises ``UnknownGame`` for another game.
    """
    hearts = own_hearts(config)
    if hearts is None:
        raise UnknownGame(
            f"Points a hand are those of Flyball's own Hearts, as hearts_4p plays it, and {config.key} plays "
            f"{config.game!r}.",
            hint="--paired is for Hearts: leave it out. Every deal and opening is played in every seat without it too.",
        )
    rules = replace(hearts, hands=1)
    selfplay = config.selfplay.model_copy(update={"rewards": "terminal"})
    return config.model_copy(update={"game": rules.game, "selfplay": selfplay}), rules.moon_for_shooter


def play_hands(config: GameConfig, policy: Player, others: Player, plan: HandsPlan) -> HandResults:
    """Play single hands of Hearts, whatever the configuration makes a game of. Deterministic on a CPU.

    Where the policy is one with the others, all seats of a deal are its own: the deal is played once, and says as much.

    Raises ``UnknownGame`` for another game.
    """
    config, moon_for_shooter = single_hands(config)
    seats = config.players
    alone = policy is others
    deals, heroes = np.divmod(np.arange(plan.deals * (1 if alone else seats)), 1 if alone else seats)
    seating = np.full((len(deals), seats), _OTHERS, dtype=np.int8)
    seating[np.arange(len(deals)), heroes] = HERO
    dealt = [derive_seed(plan.seed, "deal", plan.first + deal) for deal in range(plan.deals)]
    schedule = Schedule(
        seeds=[dealt[deal] for deal in deals.tolist()],
        seating=seating,
        temperatures=(plan.temperature,) * 2,
        seed=derive_seed(plan.seed, "choices"),
        first=plan.first * (1 if alone else seats),
    )
    table = open_table(config, min(len(deals), IN_FLIGHT))
    outcomes = Rollout(table, [policy, others], schedule).run().returns
    points = hand_points(outcomes, moon_for_shooter=moon_for_shooter)

    def own(values: NDArray[np.generic]) -> Any:
        return (values if alone else values[np.arange(len(deals)), heroes]).ravel().tolist()

    return HandResults(points=own(points), win_shares=own(win_shares(points)), moons=own(moons(outcomes)))


def compare_hands(
    config: GameConfig, hero: Player, reference: Player, others: Player, plan: HandsPlan
) -> PairedStatistics:
    """Compare a hero with a reference policy, each among three of the same others, by the same deals."""
    played, compared = (play_hands(config, policy, others, plan) for policy in (hero, reference))
    return compare_paired(played, compared, config.players)


class HandsSpec(Settings):
    """Which deals one policy plays among three of another; both are named as ``load_player`` names them."""

    store: Path
    config: GameConfig
    policy: str
    others: str
    deals: int = Field(ge=1)
    first: int = Field(default=0, ge=0)
    seed: int = Field(ge=0)
    temperature: float = Field(ge=0)
    device: str = "cpu"


def hands(spec: JsonObject, report: Report) -> JsonObject:
    """Play ``HandsSpec``, return ``HandResults``: a job. Raises what ``play_hands`` and loading the players raise."""
    asked = HandsSpec.model_validate(spec)
    store, game = FileStore(asked.store), open_table(asked.config, 0).spec
    policy, others = (PLAYERS.load(store, name, game, asked.device) for name in (asked.policy, asked.others))
    plan = HandsPlan(asked.deals, asked.seed, asked.temperature, asked.first)
    results = play_hands(asked.config, policy, others, plan)
    report({"hands": len(results.points)})
    return results.model_dump(mode="json")
