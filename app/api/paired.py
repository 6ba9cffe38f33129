"""Paired comparisons in Hearts. A model and a reference play the same deals in the same seats."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any

from flyball.app.api.evaluation import LostGames, engine_of, report_total
from flyball.app.api.opponents import EvaluationRequest, fetch_opponents
from flyball.app.api.players import fetch_player
from flyball.app.api.runs import Say
from flyball.app.core import FlyballError, derive_seed
from flyball.app.engine import JsonObject, run_coroutine, scatter
from flyball.app.games import open_table
from flyball.app.play.hands import HandResults, HandsSpec, compare_paired, single_hands
from flyball.app.store import open_store

HANDS_JOB = "flyball.app.play.hands:hands"
HANDS = 4000
"""Default hands against each opponent, enough to detect a difference of half a point."""

PARTS = 4
"""Parts for each process; several, so that all processes finish at about the same time."""

Pairing = tuple[str, str]
"""The player in the compared seat, and the one in all other seats; names for ``load_player``."""


def compare_hands(request: EvaluationRequest) -> dict[str, Any]:
    """Play the hands of a paired comparison; return the results as JSON.

    The models are copied first, so a later promotion has no effect. Unplayable models are refused before any hand.
    Raises ``UnknownGame`` for other games than Hearts.
    """
    config = request.config
    single_hands(config)  # refuses other games than Hearts
    with TemporaryDirectory(prefix="flyball-eval-") as folder:
        store = open_store(folder)
        hero = fetch_player(request.model, "model", request.location, config, store, say=request.say)
        opponents = fetch_opponents(request, hero, store)
        results = _compare(request, folder, hero, opponents)
    return {
        "config": config.key,
        "rules": open_table(config, 0).spec.rules_version,
        "policy": hero,
        "seed": request.seed,
        "device": request.device,
        "precision": request.precision,
        "temperature": config.evaluation.temperature,
        "results": results,
    }


def _compare(request: EvaluationRequest, store: str, hero: str, opponents: Mapping[str, str]) -> list[dict[str, Any]]:
    """Compare the model with its reference, by default the opponent itself, on the same deals against each opponent."""
    config, fixed = request.config, None
    if request.reference is not None:
        fixed = fetch_player(
            request.reference, "reference", request.location, config, open_store(store), say=request.say
        )
    pairs = {name: ((hero, player), (fixed or player, player)) for name, player in opponents.items()}
    spec = HandsSpec(
        store=store,
        config=config,
        policy=hero,
        others=hero,
        deals=_deals(request.games or HANDS, config.players, request.say),
        seed=derive_seed(request.seed, "hands"),
        temperature=config.evaluation.temperature,
        device=request.device,
        precision=request.precision,
        settings_folder=request.location.settings_folder,
    )
    pairings = tuple(dict.fromkeys(pairing for pair in pairs.values() for pairing in pair))
    played = run_coroutine(_play_hands(spec, pairings, request.workers, request.say))
    return [
        {
            "opponent": name,
            "opponent_player": compared[1],
            "reference_player": other[0],
            **compare_paired(played[compared], played[other], config.players).model_dump(mode="json"),
        }
        for name, (compared, other) in pairs.items()
    ]


def _deals(hands: int, seats: int, say: Say) -> int:
    deals = max(2, -(-hands // seats))
    if deals * seats != hands:
        say(f"{deals * seats} hands instead of {hands}: every deal is played in every seat, and two deals compared.")
    return deals


async def _play_hands(
    spec: HandsSpec, pairings: Sequence[Pairing], workers: int, say: Say
) -> dict[Pairing, HandResults]:
    """Play all deals with each pairing, in parallel parts. No hand depends on the part that it is in."""
    parts = 1 if workers == 1 else min(spec.deals, workers * PARTS)
    bounds = list(pairwise(spec.deals * part // parts for part in range(parts + 1)))
    jobs = [
        spec.replace(policy=policy, others=others, first=first, deals=end - first).model_dump(mode="json")
        for policy, others in pairings
        for first, end in bounds
    ]
    hands = spec.deals * spec.config.players
    text = f"of {hands} hands against each opponent, the reference's included"
    progress = report_total("hands", say, lambda played: f"{played / (hands * len(pairings)):.0%} {text}")
    async with engine_of(workers) as engine:
        outcomes = await scatter(engine, HANDS_JOB, jobs, on_progress=progress)
    starts = range(0, len(outcomes), parts)
    return {pairing: _total(outcomes[at : at + parts]) for pairing, at in zip(pairings, starts, strict=True)}


def _total(outcomes: Sequence[JsonObject | FlyballError]) -> HandResults:
    results = HandResults()
    for outcome in outcomes:
        if isinstance(outcome, FlyballError):
            raise LostGames(f"Some hands could not be played: {outcome.message}", hint=outcome.hint or "Try again.")
        results = results.plus(HandResults.model_validate(outcome))
    return results
