"""Events of scenarios: what a loop says that meets them."""

from driving import OLD

from app.events import (
    AdaptiveParamsChanged,
    ExplorationBoost,
    SelfplayComplete,
    SelfplayRequested,
    ShardRef,
)


def boosted(multiplier: float) -> ExplorationBoost:
    return ExplorationBoost(multiplier=multiplier, lasts_seconds=60, reason="x")


def adapted(rate: float) -> AdaptiveParamsChanged:
    return AdaptiveParamsChanged(epochs=3, games_per_iteration=64, learning_rate=rate, reason="x")


def asked(worker: str, model: str = OLD) -> SelfplayRequested:
    return SelfplayRequested(worker=worker, model=model, lineups=(), games=10, seed=1, temperature=1, probe=False)


def played(request: str, shard: str = "c" * 64, model: str = OLD) -> SelfplayComplete:
    return SelfplayComplete(
        request_id=request,
        probe=False,
        shard=ShardRef(worker="selfplay_worker@laptop", key=shard, rows=100, games=10, model=model, seed=1),
        opponents=(),
        temperature=1.0,
        mean_length=7.0,
        truncated_games=0,
        seconds=1.0,
    )
