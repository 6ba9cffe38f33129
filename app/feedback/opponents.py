"""Opponents of a request, drawn from the latest matchmaking. Pure: chance is the seed's."""

from functools import lru_cache
from typing import NamedTuple

from app.core import ModelHash, lineups
from app.events import Category, Lineup, MatchmakingUpdated, SampledOpponent

DRAWS = 8
"""Lineups of a request: more vary the opponents more, fewer keep the batches of games against each larger."""

DISTINCT = 2
"""Different opponents at one table (cluster sampling)."""

ITSELF = "mirror"

KEPT = 4096
"""Lineups and draws that are kept: few opponents are met again and again, and to validate one is dear."""


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
    firsts = [-(-draw * seats // distinct) for draw in range(distinct)]  # where each draw sits first
    met, draws = list[Lineup](), list[SampledOpponent]()
    count = min(DRAWS, rotations)
    for number, places in enumerate(lineups(weights, count, seats=seats, distinct=distinct, seed=seed)):
        share = players * ((number + 1) * rotations // count - number * rotations // count)
        seated = [decided.picks[place] for place in places]
        met.append(_lineup(tuple([pick.agent for pick in seated]), share))
        draws += [_sampled(seated[first].agent, seated[first].category, share) for first in firsts]
    return Meeting(tuple(met), tuple(draws))


@lru_cache(maxsize=KEPT)
def _lineup(opponents: tuple[str, ...], games: int) -> Lineup:
    return Lineup(opponents=opponents, games=games)


@lru_cache(maxsize=KEPT)
def _sampled(agent: str, category: Category, games: int) -> SampledOpponent:
    return SampledOpponent(agent=agent, category=category, games=games)
