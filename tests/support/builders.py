"""Payloads and recorded events, with usual values where a test names none."""

from datetime import timedelta
from typing import Any

from flyball.app.events import (
    AdaptiveParamsChanged,
    DaemonReady,
    EvaluationFailed,
    Event,
    Evidence,
    HyperparameterUpdated,
    ModelRolledBack,
    Payload,
    PromotionRejected,
    RunConfigured,
    ShardRef,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
    originate,
)
from flyball.app.events.envelope import EPOCH

OLD, NEW = "a" * 64, "b" * 64
EVIDENCE = Evidence(evaluation_id="e", statistic="x", value=0, threshold=0, games=1, elo=0, elo_stderr=1)


def recorded(
    data: Payload, position: int, key: str | None = None, *, seconds: float | None = None, source: str = "broker@laptop"
) -> Event[Any]:
    """Return a payload as the journal has it, at one position a second unless ``seconds`` says otherwise."""
    seconds = position if seconds is None else seconds
    envelope = originate(data, event_id=f"event-{position}", time=EPOCH + timedelta(seconds=seconds), subject=key)
    return Event(envelope, position, round(seconds * 1e6), source)


def rejected(model: str = NEW, current: str = OLD, step: int = 1) -> PromotionRejected:
    """Return the rejection of a candidate."""
    return PromotionRejected(model=model, current=current, step=step, evidence=EVIDENCE)


def rolled_back(from_model: str, to_model: str, step: int = 0, reason: str = "worse") -> ModelRolledBack:
    """Return a rollback from one model to another of a given step."""
    return ModelRolledBack(from_model=from_model, to_model=to_model, step=step, reason=reason)


def unrated(model: str = NEW, purpose: str = "rating", request: str = "e") -> EvaluationFailed:
    """Return an evaluation that failed."""
    return EvaluationFailed(request_id=request, purpose=purpose, model=model, error="no")


def training_of(*shards: ShardRef, model: str | None = OLD, step: int = 0, **changes: Any) -> TrainingRequested:
    """Return a request to train a model on shards."""
    usual = {"seed": 1, "learning_rate": 1e-3, "epochs": 1}
    return TrainingRequested(base_model=model, shards=shards, step=step, **usual | changes)


def training_failed(request: str, reason: str = "error", error: str = "no") -> TrainingFailed:
    """Return a training that failed."""
    return TrainingFailed(request_id=request, reason=reason, error=error)


def intensity(level: str, previous: str = "normal", quality_score: float = 0.4) -> TrainingIntensityChanged:
    """Return a change of the training intensity."""
    return TrainingIntensityChanged(intensity=level, previous=previous, quality_score=quality_score)


def tuned(parameter: str, value: float, previous: float = 1.0) -> HyperparameterUpdated:
    """Return an operator's new value of a hyperparameter."""
    return HyperparameterUpdated(parameter=parameter, value=value, previous=previous, reason="x")


def adapted(epochs: int = 3, games: int = 256, learning_rate: float = 1e-3) -> AdaptiveParamsChanged:
    """Return adaptive parameters."""
    return AdaptiveParamsChanged(epochs=epochs, games_per_iteration=games, learning_rate=learning_rate, reason="x")


def ready(daemon: str = "training", node: str = "laptop", *, capacity: int = 1, position: int = 0) -> DaemonReady:
    """Return a daemon that has caught up with the journal."""
    return DaemonReady(daemon=daemon, node=node, position=position, capacity=capacity)


def configured(settings: Any, run_id: str = "run") -> RunConfigured:
    """Return the record of a run's settings."""
    return RunConfigured(run_id=run_id, settings=settings.model_dump(mode="json"))
