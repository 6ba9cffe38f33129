"""Hero matches: a hero among opponents that differ between games."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from app.config import Compute, FrozenModel, GameConfig
from app.core import RANDOM, Elo, Rate, derive_seed
from app.language.rollout import TextOutcomes, TextSchedule, play_texts
from app.language.selfplay import IN_FLIGHT, agent_of, generator_for
from app.language.text_game import ranks
from app.language.text_games import open_text_table
from app.league.plackett_luce import RankedGame, fit_plackett_luce
from app.store import BlobStore


class SeatStatistics(FrozenModel):
    """An agent's results in some seats."""

    seats: int = Field(ge=1, description="seats taken in all games; a clone's counts, too")
    points: float = Field(description="mean score in the game's own points")
    rank: float = Field(ge=1, description="mean final rank, the best 1")


class AgentStatistics(SeatStatistics):
    """An agent's results in a hero match, with its rating.

    The rating follows from the final ranks of these games alone.
    """

    agent: str
    elo: float | None = Field(description="over 'random' if it played, otherwise over the hero; None if it was alone")
    elo_stderr: float | None


class HeroMatch(FrozenModel):
    """Results of a hero match.

    Scores and ratings skip pairs of seats of the same agent (clones).
    """

    games: int = Field(ge=1)
    wins: int = Field(ge=0, description="games in which one of the hero's seats had the best result alone")
    truncated: int = Field(ge=0)
    score: Rate | None = Field(description="share of the others that the hero's seats beat; None if it was alone")
    powers: dict[str, SeatStatistics] = Field(description="the hero's, by seat")
    agents: tuple[AgentStatistics, ...] = Field(description="the hero first")


def seated(
    hero_seats: Sequence[int], opponents: Sequence[Sequence[str]], hero: str, *, players: int
) -> list[tuple[str, ...]]:
    """Return the agent in each seat of each game.

    Opponents sit after the hero. The hero takes the remaining seats, too.
    """
    tables = []
    for seat, others in zip(hero_seats, opponents, strict=True):
        table = [hero] * players
        for place, other in enumerate(others, 1):
            table[(seat + place) % players] = other
        tables.append(tuple(table))
    return tables


def play_hero_match(
    store: BlobStore,
    config: GameConfig,
    tables: Sequence[tuple[str, ...]],
    *,
    hero: str,
    starts: Sequence[int],
    seed: int,
    compute: Compute,
) -> HeroMatch:
    """Play a game for each of ``tables``.

    A table names the player in each seat: a model's hash, a bot, or ``BASE_MODEL``. Games of one start begin alike.
    Raises what ``generator_for`` raises.
    """
    names = list(dict.fromkeys((hero, *(name for table in tables for name in table))))
    generator = generator_for(store, config, names, compute)
    schedule = TextSchedule(
        starts=starts,
        seeds=[derive_seed(seed, "deal", start) for start in range(max(starts) + 1)],
        openings=[config.evaluation.openings(dealt=False)] * (max(starts) + 1),
        seating=np.array([[names.index(name) for name in table] for table in tables], dtype=np.int8),
        seed=derive_seed(seed, "choices"),
    )
    table = open_text_table(config, min(len(tables), IN_FLIGHT))
    agents = [agent_of(config, name, config.evaluation.temperature) for name in names]
    outcomes, _ = play_texts(table, agents, schedule, generator, most_tokens=config.language.most_tokens)
    seats = table.spec.seats or tuple(f"seat {seat}" for seat in range(config.players))
    return summary(tables, hero, outcomes, seats, starts)


def summary(
    tables: Sequence[tuple[str, ...]], hero: str, outcomes: TextOutcomes, seats: Sequence[str], starts: Sequence[int]
) -> HeroMatch:
    """Return the results of games.

    Ranks follow from the games' returns. Points are the games' scores.
    """
    returns, scores, final = outcomes.returns, outcomes.scores, ranks(outcomes.returns)
    taken: dict[str, list[tuple[int, int]]] = defaultdict(list)  # games and seats of each agent
    shares = []
    for game, table in enumerate(tables):
        for seat, name in enumerate(table):
            taken[name].append((game, seat))
        others = [seat for seat, name in enumerate(table) if name != hero]
        own = [seat for seat, name in enumerate(table) if name == hero]
        pairs = [np.sign(returns[game, mine] - returns[game, theirs]) for mine in own for theirs in others]
        if pairs:
            shares.append(float(np.mean(pairs)) / 2 + 0.5)

    def statistics(places: Sequence[tuple[int, int]]) -> SeatStatistics:
        games, held = np.array(places).T
        return SeatStatistics(
            seats=len(places), points=float(scores[games, held].mean()), rank=float(final[games, held].mean())
        )

    anchor = RANDOM if RANDOM in taken else hero
    ratings = fit_plackett_luce(
        (RankedGame(table, tuple(row), one) for table, row, one in zip(tables, final.tolist(), starts, strict=True)),
        {anchor: Elo(0.0)},
    )
    rated = {
        name: ratings.rating(name) if len(taken) > 1 else (None, None) for name in dict.fromkeys((hero, *sorted(taken)))
    }
    best = [np.flatnonzero(row == row.max()) for row in returns]
    wins = sum(
        len(first) == 1 and table[first[0]] == hero and not cut
        for table, first, cut in zip(tables, best, outcomes.truncated.tolist(), strict=True)
    )
    by_seat = {seat: [place for place in taken[hero] if place[1] == number] for number, seat in enumerate(seats)}
    return HeroMatch(
        games=len(tables),
        wins=wins,
        truncated=int(outcomes.truncated.sum()),
        score=Rate.of(sum(shares), len(shares)) if shares else None,
        powers={seat: statistics(places) for seat, places in by_seat.items() if places},
        agents=tuple(
            AgentStatistics(agent=name, elo=elo, elo_stderr=stderr, **dict(statistics(taken[name])))
            for name, (elo, stderr) in rated.items()
        ),
    )
