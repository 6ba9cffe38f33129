"""Hero matches: a hero among opponents that differ between games."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import starmap

import numpy as np
from pydantic import Field

from flyball.app.config import Compute, FrozenModel, GameConfig
from flyball.app.core import RANDOM, Elo, Rate, derive_seed
from flyball.app.language.rollout import TextOutcomes, TextSchedule, play_texts
from flyball.app.language.selfplay import IN_FLIGHT, generator_for, player_of
from flyball.app.language.text_game import ranks
from flyball.app.language.text_games import open_text_table
from flyball.app.league.plackett_luce import RankedGame, fit_plackett_luce
from flyball.app.store import BlobStore


class SeatStatistics(FrozenModel):
    """An agent's results in some seats."""

    seats: int = Field(ge=1, description="seats taken in all games; a clone's counts, too")
    points: float = Field(description="mean score in the game's own points")
    rank: float = Field(ge=1, description="mean final rank, the best 1")


class AgentStatistics(SeatStatistics):
    """An agent's results in a hero match, with its rating from the final ranks of these games alone."""

    agent: str
    elo: float | None = Field(description="over 'random' if it played, otherwise over the hero; None if it was alone")
    elo_stderr: float | None


class HeroMatch(FrozenModel):
    """Results of a hero match. Scores and ratings skip pairs of seats of the same agent (clones)."""

    games: int = Field(ge=1)
    wins: int = Field(ge=0, description="games in which one of the hero's seats had the best result alone")
    truncated: int = Field(ge=0)
    score: Rate | None = Field(description="share of the others that the hero's seats beat; None if it was alone")
    powers: dict[str, SeatStatistics] = Field(description="the hero's, by seat")
    agents: tuple[AgentStatistics, ...] = Field(description="the hero first")


def seated(
    hero_seats: Sequence[int], opponents: Sequence[Sequence[str]], hero: str, *, players: int
) -> list[tuple[str, ...]]:
    """Return the agent in each seat of each game: opponents after the hero, which takes all other seats."""
    seatings = []
    for seat, others in zip(hero_seats, opponents, strict=True):
        seating = [hero] * players
        for offset, other in enumerate(others, 1):
            seating[(seat + offset) % players] = other
        seatings.append(tuple(seating))
    return seatings


def play_hero_match(
    store: BlobStore,
    config: GameConfig,
    seatings: Sequence[tuple[str, ...]],
    *,
    hero: str,
    starts: Sequence[int],
    seed: int,
    compute: Compute,
) -> HeroMatch:
    """Play a game for each of ``seatings``.

    A seating names the player in each seat: a model's hash, a bot, or ``BASE_MODEL``. Games of one start begin alike.
    Raises what ``generator_for`` raises.
    """
    names = list(dict.fromkeys((hero, *(name for seating in seatings for name in seating))))
    generator = generator_for(store, config, names, compute)
    schedule = TextSchedule(
        starts=starts,
        seeds=[derive_seed(seed, "deal", start) for start in range(max(starts) + 1)],
        openings=[config.evaluation.openings(dealt=False)] * (max(starts) + 1),
        seating=np.array([[names.index(name) for name in seating] for seating in seatings], dtype=np.int8),
        seed=derive_seed(seed, "choices"),
    )
    table = open_text_table(config, min(len(seatings), IN_FLIGHT))
    agents = [player_of(config, name, config.evaluation.temperature) for name in names]
    outcomes, _ = play_texts(table, agents, schedule, generator, most_tokens=config.language.most_tokens)
    seats = table.spec.seats or tuple(f"seat {seat}" for seat in range(config.players))
    return summary(seatings, hero, outcomes, seats, starts)


def summary(
    seatings: Sequence[tuple[str, ...]], hero: str, outcomes: TextOutcomes, seats: Sequence[str], starts: Sequence[int]
) -> HeroMatch:
    """Return the results of games. Ranks follow from the games' returns. Points are the games' scores."""
    returns, scores, final = outcomes.returns, outcomes.scores, ranks(outcomes.returns)
    played: dict[str, list[tuple[int, int]]] = defaultdict(list)  # games and seats of each agent
    hero_scores = []
    for game, seating in enumerate(seatings):
        for seat, name in enumerate(seating):
            played[name].append((game, seat))
        others = [seat for seat, name in enumerate(seating) if name != hero]
        own = [seat for seat, name in enumerate(seating) if name == hero]
        leads = [np.sign(returns[game, mine] - returns[game, theirs]) for mine in own for theirs in others]
        if leads:
            hero_scores.append(float(np.mean(leads)) / 2 + 0.5)

    def statistics(seats_played: Sequence[tuple[int, int]]) -> SeatStatistics:
        index = tuple(np.array(seats_played).T)
        points, rank = float(scores[index].mean()), float(final[index].mean())
        return SeatStatistics(seats=len(seats_played), points=points, rank=rank)

    anchor = RANDOM if RANDOM in played else hero
    games = zip(seatings, map(tuple, final.tolist()), starts, strict=True)
    ratings = fit_plackett_luce(starmap(RankedGame, games), {anchor: Elo(0.0)})
    rated = {
        name: ratings.rating(name) if len(played) > 1 else (None, None)
        for name in dict.fromkeys((hero, *sorted(played)))
    }
    best = [np.flatnonzero(row == row.max()) for row in returns]
    wins = sum(
        len(first) == 1 and seating[first[0]] == hero and not cut
        for seating, first, cut in zip(seatings, best, outcomes.truncated.tolist(), strict=True)
    )
    by_seat = {name: [(game, own) for game, own in played[hero] if own == seat] for seat, name in enumerate(seats)}
    return HeroMatch(
        games=len(seatings),
        wins=wins,
        truncated=int(outcomes.truncated.sum()),
        score=Rate.of(sum(hero_scores), len(hero_scores)) if hero_scores else None,
        powers={seat: statistics(seats_played) for seat, seats_played in by_seat.items() if seats_played},
        agents=tuple(
            AgentStatistics(agent=name, elo=elo, elo_stderr=stderr, **dict(statistics(played[name])))
            for name, (elo, stderr) in rated.items()
        ),
    )
