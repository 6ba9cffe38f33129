"""``flyball league CONFIG --audit GAMES``: compare ratings with an independent round robin."""

import asyncio
from collections.abc import Sequence
from typing import Any

from flyball.app.api.evaluation import engine_of, play_gauntlet
from flyball.app.api.runs import RunLocation
from flyball.app.cli.output import note, show, show_table
from flyball.app.config import GameConfig
from flyball.app.core import FlyballError, derive_seed
from flyball.app.league.audit import APART_ELO, Audit, audit
from flyball.app.league.ratings import Estimate
from flyball.app.league.totals import PairTotals, pair_totals
from flyball.app.play.gauntlet import GauntletSpec, plan_matches
from flyball.app.status.league import LeagueView
from flyball.app.status.summary import UNKNOWN, short
from flyball.app.store import open_store
from flyball.daemons.evaluation import RECENT

LEAST_MEMBERS = 2
"""Fewest members of a round robin: one pair."""

FEWEST_MEMBERS = 12
"""Members below which the audit warns that its figures say little."""

MOST_MEMBERS = 24
"""Most members that play: 276 pairs. They are chosen evenly in order of training, the newest included."""

WORST = 5


class NotPlayedHere(FlyballError, code="usage"):
    """The models of a configuration can't be played by Flyball."""


class TooFewMembers(FlyballError, code="unknown"):
    """There are not enough models on disk for a round robin."""


def audit_league(
    location: RunLocation, view: LeagueView, config: GameConfig, seed: int, *, games: int, workers: int
) -> Audit:
    """Compare a league's published ratings with a round robin of its members.

    Nothing is journaled. ``seed`` is the run's: the audit derives seeds from it that the run never uses. ``games`` per
    pair are rounded up to whole rotations. Raises ``NotPlayedHere`` or ``TooFewMembers``, and ``NothingPlayed`` or
    ``LostGames`` where a model cannot be played.
    """
    if config.is_external:
        raise NotPlayedHere(
            f"The models of {config.key} are your programs' own (backend external), and an audit plays games here.",
            hint=f"Let your programs play a round robin; flyball league {config.key} lists the members and ratings.",
        )
    published = _published_ratings(location, view)
    names = tuple(published)
    note(f"{len(names)} members, {len(names) * (len(names) - 1) // 2} pairs of {games} games.")
    own_seed = derive_seed(seed, "audit", config.key)
    return audit(published, asyncio.run(_play(location, config, own_seed, names, games=games, workers=workers)))


def _published_ratings(location: RunLocation, view: LeagueView) -> dict[str, Estimate]:
    """Return published ratings of members on disk, in order of training.

    The latest champions count as members. At most ``MOST_MEMBERS`` are returned. Raises ``TooFewMembers``.
    """
    store = open_store(location.store)
    ratings = {row["agent"]: (row["step"], row["elo"], row["elo_stderr"]) for row in view.members()}
    ratings |= {name: view.rated[name] for name in view.promoted[-RECENT:] if name in view.rated}
    rated = {
        name: Estimate(elo, stderr or 0.0)
        for name, (step, elo, stderr) in sorted(ratings.items(), key=lambda item: item[1][0] or 0)
        if step is not None and elo is not None and store.has(name)
    }
    if len(rated) < LEAST_MEMBERS:
        raise TooFewMembers(
            f"{len(rated)} rated members of the league are on disk; a round robin needs {LEAST_MEMBERS}.",
            hint="Let the run go on until more models are promoted.",
        )
    if len(rated) < FEWEST_MEMBERS:
        note(f"Only {len(rated)} members are on disk; figures of fewer than {FEWEST_MEMBERS} say little.")
    names, last = list(rated), len(rated) - 1
    if len(names) > MOST_MEMBERS:
        names = [names[number * last // (MOST_MEMBERS - 1)] for number in range(MOST_MEMBERS)]
    return {name: rated[name] for name in names}


async def _play(
    location: RunLocation, config: GameConfig, seed: int, names: Sequence[str], *, games: int, workers: int
) -> list[PairTotals]:
    played = list[PairTotals]()
    async with engine_of(workers) as engine:
        for number, hero in enumerate(names[:-1], 1):
            spec = GauntletSpec(
                store=location.store,
                config=config,
                model=hero,
                opponents=plan_matches(names[number:], games, config),
                seed=derive_seed(seed, hero),
            )
            result = await play_gauntlet(engine, spec)
            pairs = (pair_totals(hero, match.opponent_model, match) for match in result.results if match.opponent_model)
            played += filter(None, pairs)
            note(f"{number}/{len(names) - 1} members have played all others.")
    return played


def audit_json(audit: Audit, view: LeagueView, games: int) -> dict[str, Any]:
    """Return an audit as JSON."""
    steps = _steps(view)
    return {
        "games": games,
        "rms": audit.rms,
        "coverage": audit.coverage,
        "pairs_apart": audit.apart,
        "pairs_ordered": audit.ordered,
        "apart_elo": APART_ELO,
        "equal_weights_rms": audit.equal_weights_rms,
        "members": [
            {
                "agent": member.agent,
                "step": steps[member.agent],
                "champion": member.agent == view.league.champion,
                "published": member.published.elo,
                "published_stderr": member.published.stderr,
                "found": member.measured.elo,
                "found_stderr": member.measured.stderr,
                "error": member.error,
                "covered": member.covered,
            }
            for member in audit.members
        ],
    }


def show_audit(key: str, audit: Audit, view: LeagueView) -> None:
    """Show the figures of an audit and its worst members."""
    steps = _steps(view)
    rows = []
    for member in audit.members[:WORST]:
        current = ", current" if member.agent == view.league.champion else ""
        error = f"{member.error:+.0f}{'' if member.covered else ', beyond 95%'}"
        ratings = (f"{rating.elo:+.0f} ± {rating.stderr:.0f}" for rating in (member.published, member.measured))
        rows.append((short(member.agent) + current, str(steps[member.agent]), *ratings, error))
    share = f"{audit.ordered / audit.apart:.1%}" if audit.apart else UNKNOWN
    show(
        f"{key}: {len(audit.members)} members; both scales have the same mean over them",
        f"published ratings are off by {audit.rms:.0f} Elo (root mean square)",
        f"95% intervals, the round robin's error included, cover {audit.coverage:.0%}",
        f"of {audit.apart} pairs at least {APART_ELO:.0f} Elo apart, {share} are published in the right order",
        f"off by {audit.equal_weights_rms:.0f} Elo if one-sided games, which bend a scale, count in full",
        "the largest errors:",
    )
    show_table(("member", "step", "published", "round robin", "error"), rows, left=("member",))


def _steps(view: LeagueView) -> dict[str, int]:
    rated = {name: step for name, (step, *_) in view.rated.items()}
    return rated | {row["agent"]: row["step"] for row in view.members()}
