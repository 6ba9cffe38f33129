"""The evaluation job: a model's gauntlet."""

from pathlib import Path
from time import perf_counter
from typing import Self

from pydantic import Field, model_validator

from app.arena.match import MatchPlan, play_match
from app.config import GameConfig, Settings
from app.core import ModelHash, derive_seed
from app.engine import JsonObject, Report
from app.evaluation import RANDOM, MatchStatistics, Opponent
from app.games import open_table
from app.selfplay import load_player
from app.store import BlobStore, FileStore


class GauntletSpec(Settings):
    """Which model plays whom."""

    store: Path
    config: GameConfig
    model: ModelHash
    opponents: tuple[Opponent, ...] = Field(min_length=1)
    seed: int = Field(ge=0)

    @model_validator(mode="after")
    def _never_itself(self) -> Self:
        if any(opponent.model == self.model for opponent in self.opponents):
            raise ValueError(f"model {self.model} cannot be its own opponent")
        return self


class OpponentResult(MatchStatistics):
    """The match against one opponent."""

    opponent: str
    opponent_model: ModelHash | None


class GauntletResult(Settings):
    """All matches, in the order they were asked for."""

    results: tuple[OpponentResult, ...]
    seconds: float


def gauntlet(spec: JsonObject, report: Report) -> JsonObject:
    """Play ``GauntletSpec``, return ``GauntletResult``. Deterministic on a CPU, but for ``seconds``.

    Raises ``MissingBlob``, ``DamagedBlob``, ``WrongModel`` or ``UnknownGame``.
    """
    settings = GauntletSpec.model_validate(spec)
    return play_gauntlet(FileStore(settings.store), settings, report).model_dump(mode="json")


def play_gauntlet(store: BlobStore, spec: GauntletSpec, report: Report) -> GauntletResult:
    """Play a gauntlet with the models of ``store``; the store named in the spec is not opened."""
    began = perf_counter()
    game = open_table(spec.config, 1).spec
    hero = load_player(store, spec.model, game)
    results = []
    for opponent in spec.opponents:
        other = load_player(store, opponent.model or RANDOM, game)
        seed = derive_seed(spec.seed, "match", opponent.model or RANDOM)
        settings = spec.config.evaluation
        plan = MatchPlan(opponent.games, seed, settings.temperature, settings.opening_plies)
        match = play_match(spec.config, hero, other, plan)
        results.append(OpponentResult(opponent=opponent.name, opponent_model=opponent.model, **dict(match)))
        report({"opponent": opponent.name, "games": match.games, "score": match.score.mean})
    return GauntletResult(results=tuple(results), seconds=perf_counter() - began)
