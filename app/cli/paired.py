"""``flyball eval --paired``: a policy and a reference in the same hands of Hearts."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app.cli.matches import LostGames, fetch_rivals
from app.cli.models import fetch_player
from app.cli.options import Place
from app.cli.output import note
from app.config import GameConfig
from app.core import FlyballError, derive_seed
from app.engine import Engine, InlineEngine, JsonObject, LocalEngine, scatter
from app.games import open_table
from app.play.hands import HandResults, HandsSpec, compare_paired, single_hands
from app.store import FileStore

JOB = "app.play.hands:hands"
HANDS = 4000
"""Default hands against each opponent, enough to detect half a point."""

PARTS = 4
"""For each process, so that none is left alone with the last."""


@dataclass(frozen=True, slots=True)
class PairedRequest:
    """Options of the command; ``reference`` ``None`` compares with each opponent itself, in the policy's place."""

    config_key: str
    policy: str
    reference: str | None
    against: tuple[str, ...]
    hands: int | None
    temperature: float | None
    seed: int
    workers: int
    device: str


@dataclass(frozen=True, slots=True)
class _Table:
    """Whose hands are played: names as of ``load_player``."""

    policy: str
    others: str


def evaluate_paired(place: Place, request: PairedRequest) -> dict[str, Any]:
    """Play the hands and return the summary. The models are copied first: a snapshot is played.

    Raises ``UnknownConfig``, ``UnknownGame`` where it is not Hearts, what ``fetch_player`` and ``fetch_rivals`` raise,
    all before any hand is played; or ``LostGames``.
    """
    config = place.load({"configs": [request.config_key]}).run.config(request.config_key)
    single_hands(config)
    with TemporaryDirectory(prefix="flyball-eval-") as folder:
        store = FileStore(Path(folder))
        policy = fetch_player(request.policy, "--model", place, config, store)
        opponents = fetch_rivals(request.against, policy, place, config, store, seed=request.seed)
        reference = request.reference
        fixed = None if reference is None else fetch_player(reference, "--reference", place, config, store)
        pairs = {name: (_Table(policy, player), _Table(fixed or player, player)) for name, player in opponents.items()}
        tables = tuple(dict.fromkeys(table for pair in pairs.values() for table in pair))
        played = asyncio.run(_play(_Plan(Path(folder), config, request), tables))
    return {
        "config": config.key,
        "rules": open_table(config, 0).spec.rules_version,
        "policy": policy,
        "seed": request.seed,
        "device": request.device,
        "temperature": _temperature(request, config),
        "results": [
            {
                "opponent": name,
                "opponent_player": hero.others,
                "reference_player": reference.policy,
                **compare_paired(played[hero], played[reference], config.players).model_dump(mode="json"),
            }
            for name, (hero, reference) in pairs.items()
        ],
    }


@dataclass(frozen=True, slots=True)
class _Plan:
    store: Path
    config: GameConfig
    request: PairedRequest

    @property
    def deals(self) -> int:
        seats, asked = self.config.players, self.request.hands or HANDS
        deals = max(2, -(-asked // seats))
        if deals * seats != asked:
            note(
                f"{deals * seats} hands instead of {asked}: every deal is played in every seat, and two deals compared."
            )
        return deals

    def parts(self, table: _Table, deals: int) -> Iterator[JsonObject]:
        """Yield the jobs of a table; no hand depends on its part."""
        request = self.request
        parts = 1 if request.workers == 1 else min(deals, request.workers * PARTS)
        bounds = [deals * part // parts for part in range(parts + 1)]
        for first, end in pairwise(bounds):
            spec = HandsSpec(
                store=self.store,
                config=self.config,
                policy=table.policy,
                others=table.others,
                deals=end - first,
                first=first,
                seed=derive_seed(request.seed, "hands"),
                temperature=_temperature(request, self.config),
                device=request.device,
            )
            yield spec.model_dump(mode="json")


def _temperature(request: PairedRequest, config: GameConfig) -> float:
    return config.evaluation.temperature if request.temperature is None else request.temperature


async def _play(plan: _Plan, tables: tuple[_Table, ...]) -> dict[_Table, HandResults]:
    engine: Engine = InlineEngine() if plan.request.workers == 1 else LocalEngine(plan.request.workers)
    deals = plan.deals
    specs = {table: list(plan.parts(table, deals)) for table in tables}
    hands, played = deals * plan.config.players, 0

    def tell(report: JsonObject) -> None:
        nonlocal played
        played += report["hands"]
        note(f"{played / (hands * len(tables)):.0%} of {hands} hands against each opponent, the reference's included")

    try:
        everything = [spec for parts in specs.values() for spec in parts]
        outcomes = iter(await scatter(engine, JOB, everything, on_progress=tell))
    finally:
        await engine.close()
    return {table: _together([next(outcomes) for _ in parts]) for table, parts in specs.items()}


def _together(outcomes: list[JsonObject | FlyballError]) -> HandResults:
    results = HandResults()
    for outcome in outcomes:
        if isinstance(outcome, FlyballError):
            raise LostGames(f"Some hands could not be played: {outcome.message}", hint=outcome.hint or "Try again.")
        results = results.plus(HandResults.model_validate(outcome))
    return results
