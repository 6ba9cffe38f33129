"""ModelLifecycleCoordinator: which model is current.

The rule, for now: the first evaluated model is promoted; a later one is rejected when it is significantly worse than
the champion, that is when the 95% interval of its score against it lies below one half, and promoted otherwise.
"""

from collections.abc import Mapping
from typing import ClassVar

from app.core import ModelHash
from app.events import (
    Emission,
    EvaluationCompleted,
    Event,
    Evidence,
    MatchResult,
    ModelPromoted,
    Payload,
    PromotionRejected,
    Step,
    Value,
)
from app.feedback.controller import Controller
from app.feedback.state import FeedbackState

EVEN = 0.5
"""The score of equals."""


class CurrentRow(Value):
    """The current model of one configuration."""

    model: ModelHash
    step: int
    elo: float


class ModelLifecycleCoordinator(Controller[CurrentRow]):
    """Promotes or rejects every evaluated model."""

    name: ClassVar[str] = "ModelLifecycleCoordinator"
    row: ClassVar[type[CurrentRow]] = CurrentRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset({EvaluationCompleted})
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({ModelPromoted, PromotionRejected})

    def step(
        self,
        rows: Mapping[str, CurrentRow],
        event: Event[Payload],
        states: Mapping[str, FeedbackState],  # noqa: ARG002
    ) -> Step[CurrentRow]:
        """Fold one event."""
        data, current = event.data, rows.get(event.subject)
        if not isinstance(data, EvaluationCompleted) or (current and current.model == data.model):
            return Step()
        match = _against(data, current)
        evidence = _evidence(event, data, match)
        if current and match and match.score.upper < EVEN:
            rejection = PromotionRejected(model=data.model, current=current.model, step=data.step, evidence=evidence)
            return Step(emissions=(Emission(rejection),))
        promotion = ModelPromoted(
            model=data.model,
            previous=current.model if current else None,
            step=data.step,
            elo=data.elo,
            evidence=evidence,
        )
        row = CurrentRow(model=data.model, step=data.step, elo=data.elo)
        return Step({event.subject: row}, (Emission(promotion),))


def _against(data: EvaluationCompleted, current: CurrentRow | None) -> MatchResult | None:
    """Return the match against the current model, when there was one."""
    return next((m for m in data.results if current and m.opponent_model == current.model), None)


def _evidence(event: Event[Payload], data: EvaluationCompleted, match: MatchResult | None) -> Evidence:
    decisive = match or data.results[0]
    return Evidence(
        evaluation_id=event.id,
        statistic=f"upper bound of the score against {decisive.opponent}",
        value=decisive.score.upper,
        threshold=EVEN if match else 0.0,
        games=decisive.games,
        elo=data.elo,
        elo_stderr=data.elo_stderr,
    )
