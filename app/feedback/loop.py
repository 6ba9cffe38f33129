"""FeedbackLoopController: after each training, an evaluation (seed 003, event flow diagram)."""

from collections.abc import Mapping
from typing import ClassVar

from app.core import ModelHash, derive_seed
from app.events import (
    Emission,
    EvaluationCompleted,
    EvaluationFailed,
    EvaluationRequested,
    Event,
    Payload,
    Step,
    TrainingCompleted,
    Value,
)
from app.feedback.controller import Controller
from app.feedback.state import FeedbackState

MAX_ATTEMPTS = 3
"""How often the evaluation of one model is asked for before it is given up."""


class FeedbackRow(Value):
    """The model whose evaluation is awaited, and how often it was asked for."""

    model: ModelHash
    step: int
    attempts: int


class FeedbackLoopController(Controller[FeedbackRow]):
    """Asks for the gauntlet of every new model, and again when it fails."""

    name: ClassVar[str] = "FeedbackLoopController"
    row: ClassVar[type[FeedbackRow]] = FeedbackRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset({TrainingCompleted, EvaluationCompleted, EvaluationFailed})
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({EvaluationRequested})

    def step(
        self,
        rows: Mapping[str, FeedbackRow],
        event: Event[Payload],
        states: Mapping[str, FeedbackState],  # noqa: ARG002
    ) -> Step[FeedbackRow]:
        """Fold one event."""
        row = rows.get(event.subject)
        match event.data:
            case TrainingCompleted(model=model, step=step):
                return self._ask(event.subject, FeedbackRow(model=model, step=step, attempts=1))
            case EvaluationFailed(model=model) if row and row.model == model and row.attempts < MAX_ATTEMPTS:
                return self._ask(event.subject, row.model_copy(update={"attempts": row.attempts + 1}))
            case EvaluationCompleted() | EvaluationFailed() if row:
                return Step({event.subject: None})
        return Step()

    def _ask(self, key: str, row: FeedbackRow) -> Step[FeedbackRow]:
        seed = derive_seed(self.settings.seed, key, "evaluation", row.model, row.attempts)
        return Step({key: row}, (Emission(EvaluationRequested(model=row.model, step=row.step, seed=seed)),))
