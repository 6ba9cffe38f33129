"""The evaluation job: a batch of a model's gauntlet."""

from time import perf_counter

from app.arena.match import MatchPlan, play_match
from app.core import derive_seed
from app.engine import JsonObject, Report
from app.evaluation import BatchResult, BatchSpec
from app.games import open_table
from app.selfplay import PLAYERS
from app.store import BlobStore, FileStore


def batch(spec: JsonObject, report: Report) -> JsonObject:
    """Play ``BatchSpec``, return ``BatchResult``. Deterministic on a CPU, but for ``seconds``.

    Raises ``MissingBlob``, ``DamagedBlob``, ``WrongModel`` or ``UnknownGame``.
    """
    settings = BatchSpec.model_validate(spec)
    result = play_batch(FileStore(settings.store), settings)
    report({"opponent": settings.batch.opponent.name, "games": settings.batch.games})
    return result.model_dump(mode="json")


def play_batch(store: BlobStore, spec: BatchSpec) -> BatchResult:
    """Play a batch with the models of ``store``; the store named in the spec is not opened."""
    began = perf_counter()
    game, settings, asked = open_table(spec.config, 0).spec, spec.config.evaluation, spec.batch
    name = asked.opponent.player
    hero, other = (PLAYERS.load(store, player, game, spec.device) for player in (spec.model, name))
    seed = derive_seed(spec.seed, "match", name)
    plan = MatchPlan(asked.games, seed, settings.temperature, settings.opening_plies, asked.first)
    games = play_match(spec.config, hero, other, plan)
    return BatchResult(games=games, seconds=perf_counter() - began)
