"""``flyball eval --paired``: a policy and a reference in the same hands of Hearts."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app.cli.matches import LostGames, configured, engine_of, fetch_opponents
from app.cli.models import fetch_player
from app.cli.options import Place
from app.cli.output import note
from app.core import FlyballError, derive_seed
from app.engine import JsonObject, scatter
from app.games import open_table
from app.play.hands import HandResults, HandsSpec, compare_paired, single_hands
from app.store import FileStore

JOB = "app.play.hands:hands"
HANDS = 4000
"""Default hands against each opponent, enough to detect half a point."""

PARTS = 4
"""For each process, so that none is left alone with the last."""

Lineup = tuple[str, str]
"""The player in the compared seat and the one in all others, as ``load_player`` calls them."""


def evaluate_paired(
    place: Place,
    config_key: str,
    *,
    model: str,
    reference: str | None,
    against: Sequence[str],
    games: int | None,
    temperature: float | None,
    seed: int,
    workers: int,
    device: str,
) -> dict[str, Any]:
    """Play the hands and return the summary. The models are copied first: a snapshot is played.

    Without a reference, each opponent itself takes the policy's place.

    Raises ``UnknownConfig``, ``UnknownGame`` where it is not Hearts, what ``fetch_player`` and ``fetch_opponents``
    raise, all before any hand is played; or ``LostGames``.
    """
    config = configured(place, config_key, temperature)
    single_hands(config)
    with TemporaryDirectory(prefix="flyball-eval-") as folder:
        store = FileStore(Path(folder))
        policy = fetch_player(model, "--model", place, config, store)
        opponents = fetch_opponents(against, policy, place, config, store, seed=seed)
        fixed = None if reference is None else fetch_player(reference, "--reference", place, config, store)
        pairs = {name: ((policy, player), (fixed or player, player)) for name, player in opponents.items()}
        spec = HandsSpec(
            store=Path(folder),
            config=config,
            policy=policy,
            others=policy,
            deals=_deals(games or HANDS, config.players),
            first=0,
            seed=derive_seed(seed, "hands"),
            temperature=config.evaluation.temperature,
            device=device,
        )
        lineups = tuple(dict.fromkeys(lineup for pair in pairs.values() for lineup in pair))
        played = asyncio.run(_play(spec, lineups, workers))
    return {
        "config": config.key,
        "rules": open_table(config, 0).spec.rules_version,
        "policy": policy,
        "seed": seed,
        "device": device,
        "temperature": config.evaluation.temperature,
        "results": [
            {
                "opponent": name,
                "opponent_player": hero[1],
                "reference_player": other[0],
                **compare_paired(played[hero], played[other], config.players).model_dump(mode="json"),
            }
            for name, (hero, other) in pairs.items()
        ],
    }


def _deals(asked: int, seats: int) -> int:
    deals = max(2, -(-asked // seats))
    if deals * seats != asked:
        note(f"{deals * seats} hands instead of {asked}: every deal is played in every seat, and two deals compared.")
    return deals


async def _play(spec: HandsSpec, lineups: Sequence[Lineup], workers: int) -> dict[Lineup, HandResults]:
    """Play all deals with each lineup, in parts; no hand depends on its part."""
    parts = 1 if workers == 1 else min(spec.deals, workers * PARTS)
    bounds = list(pairwise(spec.deals * part // parts for part in range(parts + 1)))
    jobs = [
        spec.replace(policy=policy, others=others, first=first, deals=end - first).model_dump(mode="json")
        for policy, others in lineups
        for first, end in bounds
    ]
    hands, played = spec.deals * spec.config.players, 0

    def show_progress(report: JsonObject) -> None:
        nonlocal played
        played += report["hands"]
        share = played / (hands * len(lineups))
        note(f"{share:.0%} of {hands} hands against each opponent, the reference's included")

    async with engine_of(workers) as engine:
        outcomes = await scatter(engine, JOB, jobs, on_progress=show_progress)
    starts = range(0, len(outcomes), parts)
    return {lineup: _total(outcomes[at : at + parts]) for lineup, at in zip(lineups, starts, strict=True)}


def _total(outcomes: Sequence[JsonObject | FlyballError]) -> HandResults:
    results = HandResults()
    for outcome in outcomes:
        if isinstance(outcome, FlyballError):
            raise LostGames(f"Some hands could not be played: {outcome.message}", hint=outcome.hint or "Try again.")
        results = results.plus(HandResults.model_validate(outcome))
    return results
