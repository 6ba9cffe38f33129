"""Whom a request's games are played against, drawn from what matchmaking decided last. Pure: chance is the seed's."""

from typing import NamedTuple

from app.core import ModelHash, derive_seed, lineup
from app.events import Lineup, MatchmakingUpdated, SampledOpponent

DRAWS = 8
"""Lineups of a request: more vary the opponents more, fewer keep the batches of games against each larger."""

DISTINCT = 2
"""Different opponents at one table (cluster sampling, seed 001 §4)."""

ITSELF = "mirror"


class Meeting(NamedTuple):
    """Lineups for a request, and what was drawn for them; both are empty when the model meets only itself."""

    lineups: tuple[Lineup, ...] = ()
    draws: tuple[SampledOpponent, ...] = ()


def meeting(decided: MatchmakingUpdated | None, model: ModelHash, players: int, games: int, seed: int) -> Meeting:
    """Draw lineups of whole rotations: an opponent never changes within a game, nor between a rotation's games.

    Args:
        decided: by matchmaking. What it decided for another model holds for none.
        model: the hero.
        players: of a game.
        games: of the request; those that make no whole rotation are left to the model alone.
        seed: of the request.
    """
    if decided is None or decided.model != model or all(pick.category == ITSELF for pick in decided.picks):
        return Meeting()
    weights = {place: pick.probability for place, pick in enumerate(decided.picks)}
    rotations = games // players
    seats, distinct = players - 1, min(players - 1, DISTINCT)
    lineups, draws = list[Lineup](), list[SampledOpponent]()
    count = min(DRAWS, rotations)
    for number in range(count):
        share = players * ((number + 1) * rotations // count - number * rotations // count)
        places = lineup(weights, seats, distinct, derive_seed(seed, "lineup", number))
        seated = [decided.picks[place] for place in places]
        lineups.append(Lineup(opponents=tuple(pick.agent for pick in seated), games=share))
        firsts = (seated[-(-draw * seats // distinct)] for draw in range(distinct))  # where each draw sits first
        draws += [SampledOpponent(agent=pick.agent, category=pick.category, games=share) for pick in firsts]
    return Meeting(tuple(lineups), tuple(draws))
