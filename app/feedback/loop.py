"""FeedbackLoopController: evaluations after trainings, stalls, and what the quality of data calls for (seed 003 §3).

Where no evaluation comes for the whole stall window, nothing says whether a configuration improves. That is no plateau,
and exploration would not bring an evaluation: it is said once (EVALUATION_OVERDUE), and the status tells what to do.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import ClassVar

from app.core import EventId, ModelHash, derive_id, derive_seed
from app.events import (
    Cause,
    ClockTick,
    Emission,
    EvaluationCompleted,
    EvaluationFailed,
    EvaluationOverdue,
    EvaluationRequested,
    Event,
    ExplorationBoost,
    ParityChecked,
    Payload,
    PlateauDetected,
    QualityPenaltyApplied,
    QualityScoreUpdated,
    Row,
    Step,
    TrainingBlockedByQuality,
    TrainingCompleted,
    TrainingIntensityChanged,
    TrainingUnblocked,
)
from app.feedback.controller import Controller
from app.feedback.data_quality import US, QualityRow, adopt_block, apply_parity, apply_quality
from app.feedback.folding import longest_between_sweeps
from app.feedback.stall import BoostRow, Look, adopt_boost, check_stall
from app.feedback.state import FeedbackState, state_of
from app.feedback.trend import SECONDS_PER_HOUR

MAX_ATTEMPTS = 3
"""How often the evaluation of one model is asked for before it is given up."""

ADOPTED = (ExplorationBoost, TrainingBlockedByQuality, TrainingUnblocked)
"""Decisions that an operator may take too: its owner goes on from them."""

UNSEEN = 16
"""Own decisions that it waits to see recorded; it knows them by their ids, and does not take them for an operator's."""

SWEEP = ""
"""The row that says when all configurations were last looked at."""


class Awaited(Row, frozen=True):
    """The model whose evaluation is awaited, and how often it was asked for."""

    model: ModelHash
    step: int
    attempts: int

    def may_be_repeated(self, failed: ModelHash) -> bool:
        """Whether it is the evaluation of this model that is awaited, and not tried too often yet."""
        return self.model == failed and self.attempts < MAX_ATTEMPTS


class FeedbackRow(Row, frozen=True):
    """What the controller remembers of one configuration.

    Attributes:
        awaited: the model whose evaluation is awaited.
        rated_us: when it was evaluated last, or first looked at; time in which the run was off is left out.
        overdue: it was said that no evaluation comes.
        evaluated: the last evaluation.
        inspected: the last inspected shard.
        unseen: the latest own decisions that an operator may take too and that are not recorded yet.
    """

    awaited: Awaited | None = None
    boost: BoostRow = BoostRow()
    quality: QualityRow = QualityRow()
    swept_us: int = 0
    rated_us: int | None = None
    overdue: bool = False
    evaluated: Cause | None = None
    inspected: Cause | None = None
    unseen: tuple[EventId, ...] = ()


FIRST = FeedbackRow()
"""The row of a configuration of which nothing is known."""


class FeedbackLoopController(Controller[FeedbackRow]):
    """Owns the exploration boost, the self-play rate, the training intensity and the training block."""

    name: ClassVar[str] = "FeedbackLoopController"
    row: ClassVar[type[FeedbackRow]] = FeedbackRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            TrainingCompleted,
            EvaluationCompleted,
            EvaluationFailed,
            QualityScoreUpdated,
            ParityChecked,
            ClockTick,
            ExplorationBoost,
            TrainingBlockedByQuality,
            TrainingUnblocked,
        }
    )
    emits: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            EvaluationOverdue,
            EvaluationRequested,
            ExplorationBoost,
            PlateauDetected,
            QualityPenaltyApplied,
            TrainingIntensityChanged,
            TrainingBlockedByQuality,
            TrainingUnblocked,
        }
    )

    def step(
        self, rows: Mapping[str, FeedbackRow], event: Event[Payload], states: Mapping[str, FeedbackState]
    ) -> Step[FeedbackRow]:
        """Fold one event."""
        if isinstance(event.data, ClockTick):
            return self._sweep(rows, event, states)
        key = event.subject
        before = rows.get(key) or FIRST
        row, emissions = self._after(before, state_of(states, key), event)
        row = self._awaiting(row, event, emissions)
        return Step({} if row is before else {key: row}, tuple(emissions))

    def _after(  # noqa: C901 - one event a case
        self, row: FeedbackRow, state: FeedbackState, event: Event[Payload]
    ) -> tuple[FeedbackRow, Sequence[Emission]]:
        settings = self.settings.feedback
        if event.id in row.unseen:
            return _seen(row, event), ()
        match event.data:
            case QualityScoreUpdated() if state.quality_score is not None:
                quality, said = apply_quality(row.quality, state.quality_score, settings, event.recorded_us)
                return row.model_copy(update={"quality": quality, "inspected": event.cause}), _emitted(said)
            case ParityChecked(checked=checked, failures=failures):
                quality, said = apply_parity(row.quality, checked, failures, settings.quality)
                return row.model_copy(update={"quality": quality}), _emitted(said)
            case TrainingBlockedByQuality() | TrainingUnblocked() as decision:
                blocked = isinstance(decision, TrainingBlockedByQuality)
                return row.model_copy(update={"quality": adopt_block(row.quality, blocked=blocked)}), ()
            case ExplorationBoost() as decision:
                boost = adopt_boost(row.boost, decision, event.recorded_us)
                return row.model_copy(update={"boost": boost.model_copy(update={"set_by": event.cause})}), ()
            case TrainingCompleted(model=model, step=step):
                return self._ask(row, event.subject, Awaited(model=model, step=step, attempts=1))
            case EvaluationFailed(purpose="rating", model=model) if row.awaited and row.awaited.may_be_repeated(model):
                again = row.awaited.model_copy(update={"attempts": row.awaited.attempts + 1})
                return self._ask(row, event.subject, again)
            case EvaluationCompleted(purpose="rating", model=model):
                awaited = None if row.awaited and row.awaited.model == model else row.awaited
                rated = {"awaited": awaited, "rated_us": event.recorded_us, "overdue": False, "evaluated": event.cause}
                return self._check(row.model_copy(update=rated), state, event)
        return row, ()

    def _awaiting(
        self, row: FeedbackRow, event: Event[Payload], emissions: Sequence[Emission], first: int = 0
    ) -> FeedbackRow:
        """Return a row that knows the ids of own decisions; the first of the emissions is the event's ``first``-th."""
        own = [
            derive_id(self.name, event.id, index)
            for index, emission in enumerate(emissions, first)
            if isinstance(emission.data, ADOPTED)
        ]
        return row.model_copy(update={"unseen": (*row.unseen, *own)[-UNSEEN:]}) if own else row

    def _ask(self, row: FeedbackRow, key: str, awaited: Awaited) -> tuple[FeedbackRow, Sequence[Emission]]:
        seed = derive_seed(self.settings.seed, key, "evaluation", awaited.model, awaited.attempts)
        request = EvaluationRequested(purpose="rating", model=awaited.model, step=awaited.step, seed=seed)
        return row.model_copy(update={"awaited": awaited}), (Emission(request),)

    def _check(
        self, row: FeedbackRow, state: FeedbackState, event: Event[Payload]
    ) -> tuple[FeedbackRow, Sequence[Emission]]:
        """Look for a stall or a pause. Where evaluations are overdue, old ones say nothing of now."""
        look = Look(
            now=event.recordedtime,
            now_us=event.recorded_us,
            history=() if row.overdue else state.elo_history,
            evaluated=row.evaluated,
            paused_by=row.inspected if row.quality.intensity == "paused" else None,
        )
        boost, emissions = check_stall(row.boost, look, self.settings.feedback.stall)
        return row if boost is row.boost else row.model_copy(update={"boost": boost}), emissions

    def _sweep(
        self, rows: Mapping[str, FeedbackRow], event: Event[Payload], states: Mapping[str, FeedbackState]
    ) -> Step[FeedbackRow]:
        """Look at all configurations, once per check period: those without evaluations have stalls and boosts too."""
        now_us, last = event.recorded_us, (rows.get(SWEEP) or FIRST).swept_us
        if now_us - last < self.settings.feedback.stall.check_seconds * US:
            return Step()
        off_us = now_us - last if timedelta(microseconds=now_us - last) > longest_between_sweeps(self.settings) else 0
        changed: dict[str, FeedbackRow | None] = {SWEEP: FeedbackRow(swept_us=now_us)}
        emissions = list[Emission]()
        for config in self.settings.configs:  # rows are in another order after a restart: ids depend on the order
            row = rows.get(config.key) or FIRST
            row = row.model_copy(update={"rated_us": now_us if row.rated_us is None else row.rated_us + off_us})
            row, overdue = self._missed(row, now_us)
            row, found = self._check(row, state_of(states, config.key), event)
            said = [emission._replace(subject=config.key) for emission in (*overdue, *found)]
            changed[config.key] = self._awaiting(row, event, said, first=len(emissions))
            emissions += said
        return Step(changed, tuple(emissions))

    def _missed(self, row: FeedbackRow, now_us: int) -> tuple[FeedbackRow, Sequence[Emission]]:
        """Say once that no evaluation came for the whole stall window."""
        assert row.rated_us is not None  # the sweep has just set it
        hours = (now_us - row.rated_us) / US / SECONDS_PER_HOUR
        if row.overdue or hours < self.settings.feedback.stall.window_hours:
            return row, ()
        model, attempts = (row.awaited.model, row.awaited.attempts) if row.awaited else (None, 0)
        overdue = EvaluationOverdue(hours=hours, model=model, attempts=attempts)
        return row.model_copy(update={"overdue": True}), (Emission(overdue, evidence=row.evaluated),)


def _emitted(payloads: Sequence[Payload]) -> Sequence[Emission]:
    return tuple([Emission(payload) for payload in payloads])


def _seen(row: FeedbackRow, event: Event[Payload]) -> FeedbackRow:
    """Return the row after an own decision was recorded: it was taken in when it was taken."""
    unseen = tuple(one for one in row.unseen if one != event.id)
    if not isinstance(event.data, ExplorationBoost):
        return row.model_copy(update={"unseen": unseen})
    return row.model_copy(update={"unseen": unseen, "boost": row.boost.model_copy(update={"set_by": event.cause})})
