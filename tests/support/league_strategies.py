"""Hypothesis strategies for leagues.

Each league is made from one drawn number, because drawing every part would take long.
"""

from random import Random

from hypothesis import strategies as st
from leagues import model

from flyball.app.core import Elo, rotation_outcomes
from flyball.app.events import LeagueRole
from flyball.app.league.league import Agent, League
from flyball.app.league.totals import PairTotals

ROLES: tuple[tuple[LeagueRole, ...], ...] = (
    ("recent",),
    ("anchor",),
    ("elite",),
    ("recent", "anchor"),
    ("recent", "anchor", "elite"),
)
NUMBERS = st.integers(0, 2**32 - 1)


def random_checkpoint(step: int, rng: Random) -> Agent:
    """Make the checkpoint of a step, rated or not, retired or not."""
    rated = rng.random() < 0.8
    parent = rng.randrange(step) if step and rng.random() < 0.7 else None
    return Agent(
        id=model(step),
        kind="checkpoint",
        step=step,
        elo=Elo(rng.uniform(-2000, 4000)) if rated else None,
        elo_stderr=rng.choice([None, 0.0, rng.uniform(0, 500)]) if rated else None,
        matches=rng.randrange(10**6),
        created_us=rng.choice([None, rng.randrange(4 * 10**15)]),
        parent=None if parent is None else model(parent),
        roles=rng.choice(ROLES),
        retired=rng.random() < 0.3,
    )


def random_league(number: int) -> League:
    """Make a league with any members, games, retired and unknown ones."""
    rng = Random(number)
    league = League().with_baselines(rng.choice([(), ("random",), ("heuristic", "random")]))
    for step in rng.sample(range(300), rng.randrange(8)):
        league = league.with_agent(random_checkpoint(step, rng))
    known = [*league.agents, model(999)]
    for _ in range(rng.randrange(12)):
        one, other = rng.choice(known), rng.choice(known)
        counts = tuple(rng.randrange(4) for _ in range(rotation_outcomes(rng.randint(2, 7))))
        if one != other and sum(counts):
            league = league.with_games(PairTotals.of_rotations(one, other, counts))
    champion, good = (rng.choice([None, *known]) for _ in range(2))
    return league.replace(champion=champion, last_good=good)


def leagues() -> st.SearchStrategy[League]:
    """Return a strategy for leagues."""
    return NUMBERS.map(random_league)


@st.composite
def heroes(draw: st.DrawFn, league: League) -> Agent:
    """Draw a member, a retired member, or a non-member."""
    stranger = random_checkpoint(998, Random(draw(NUMBERS)))
    return draw(st.sampled_from([stranger, *league.agents.values()]))
