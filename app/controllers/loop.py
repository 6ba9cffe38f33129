"""FeedbackLoopController: evaluations after trainings, stalls, quality of data.

Where no evaluation comes for the whole stall window, improvement is unknown. That is not a plateau, and exploration
would not bring an evaluation. So EVALUATION_OVERDUE is emitted once, and the status shows a remedy.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import ClassVar

from app.controllers.bad_nodes import Delivered, NodeRow, NodeWatch
from app.controllers.controller import Controller
from app.controllers.data_quality import US, QualityRow, adopt_block, apply_parity, apply_quality
from app.controllers.stall import BoostRow, Look, adopt_boost, check_stall
from app.controllers.state import FeedbackState, longest_between_sweeps, state_of
from app.controllers.trend import SECONDS_PER_HOUR
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
    NodeProbed,
    NodeQuarantined,
    NodeReleased,
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

MAX_ATTEMPTS = 3
"""How often the evaluation of one model is asked for before it is given up."""

ADOPTED = (ExplorationBoost, NodeQuarantined, NodeReleased, TrainingBlockedByQuality, TrainingUnblocked)
"""Decisions that an operator may take too: its owner goes on from them."""

UNSEEN = 16
"""Most own decisions awaiting their record; their ids tell them from an operator's."""

SWEEP = ""
"""The row that says when all configurations were last looked at."""

NODE = "node:"
"""Prefix of the keys of workers' rows."""


class Awaited(Row, frozen=True):
    """The model whose evaluation is awaited, and how often it was asked for."""

    model: ModelHash
    step: int
    attempts: int

    def may_be_repeated(self, failed: ModelHash) -> bool:
        """Return whether it is the evaluation of this model that is awaited, and not tried too often yet."""
        return self.model == failed and self.attempts < MAX_ATTEMPTS


class FeedbackRow(Row, frozen=True):
    """The controller's row of one configuration, or of one worker (``node``).

    Attributes:
        awaited: the model whose evaluation is awaited.
        rated_us: when it was evaluated last, or first seen; moved on by the time in which the run was off.
        overdue: EVALUATION_OVERDUE was emitted since the last evaluation.
        evaluated: the last evaluation.
        inspected: the last inspected shard.
        unseen: the latest own decisions that an operator may take too and that are not recorded yet.
    """

    awaited: Awaited | None = None
    boost: BoostRow = BoostRow()
    quality: QualityRow = QualityRow()
    delivered: tuple[Delivered, ...] = ()
    node: NodeRow = NodeRow()
    swept_us: int = 0
    rated_us: int | None = None
    overdue: bool = False
    evaluated: Cause | None = None
    inspected: Cause | None = None
    unseen: tuple[EventId, ...] = ()


FIRST = FeedbackRow()
"""The row of a configuration of which nothing is known."""


class FeedbackLoopController(Controller[FeedbackRow]):
    """Owns the exploration boost, the self-play rate, training intensity and block, and the quarantine of workers."""

    name: ClassVar[str] = "FeedbackLoopController"
    row: ClassVar[type[FeedbackRow]] = FeedbackRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            TrainingCompleted,
            EvaluationCompleted,
            EvaluationFailed,
            QualityScoreUpdated,
            ParityChecked,
            NodeProbed,
            NodeQuarantined,
            NodeReleased,
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
            NodeQuarantined,
            NodeReleased,
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
        key = _row_of(event.data, event.subject)
        row = rows.get(key) or FIRST
        if event.id in row.unseen:
            return Step({key: _seen(row, event)})
        match event.data:
            case ClockTick():
                step = self._sweep(rows, event, states)
            case NodeQuarantined() | NodeReleased() as decision:
                return Step({key: row.replace(node=_adopted(decision, event.recorded_us))})
            case QualityScoreUpdated() | ParityChecked() | NodeProbed():
                step = self._inspected(rows, event, states)
            case _:
                after, emissions = self._after(row, state_of(states, key), event)
                step = Step({} if after is row else {key: after}, tuple(emissions))
        return self._awaiting(step, rows, event)

    def _awaiting(
        self, step: Step[FeedbackRow], rows: Mapping[str, FeedbackRow], event: Event[Payload]
    ) -> Step[FeedbackRow]:
        """Return a step whose rows hold the ids of its decisions, to tell them from an operator's."""
        changed = dict(step.rows)
        for index, (data, subject, _) in enumerate(step.emissions):
            if isinstance(data, ADOPTED):
                key = _row_of(data, subject or event.subject)
                row = changed.get(key) or rows.get(key) or FIRST
                unseen = (*row.unseen, derive_id(self.name, event.id, index))
                changed[key] = row.replace(unseen=unseen[-UNSEEN:])
        return Step(changed, step.emissions)

    def _after(
        self, row: FeedbackRow, state: FeedbackState, event: Event[Payload]
    ) -> tuple[FeedbackRow, Sequence[Emission]]:
        match event.data:
            case TrainingBlockedByQuality() | TrainingUnblocked() as decision:
                blocked = isinstance(decision, TrainingBlockedByQuality)
                return row.replace(quality=adopt_block(row.quality, blocked=blocked)), ()
            case ExplorationBoost() as decision:
                boost = adopt_boost(row.boost, decision, event.recorded_us)
                return row.replace(boost=boost.replace(set_by=event.cause)), ()
            case TrainingCompleted(model=model, step=step):
                return self._ask(row, event.subject, Awaited(model=model, step=step, attempts=1))
            case EvaluationFailed(purpose="rating", model=model) if row.awaited and row.awaited.may_be_repeated(model):
                again = row.awaited.replace(attempts=row.awaited.attempts + 1)
                return self._ask(row, event.subject, again)
            case EvaluationCompleted(purpose="rating", model=model):
                awaited = None if row.awaited and row.awaited.model == model else row.awaited
                rated = {"awaited": awaited, "rated_us": event.recorded_us, "overdue": False, "evaluated": event.cause}
                return self._check(row.replace(**rated), state, event)
        return row, ()

    def _inspected(  # noqa: C901 - what an inspection says of both sides, in one place
        self, rows: Mapping[str, FeedbackRow], event: Event[Payload], states: Mapping[str, FeedbackState]
    ) -> Step[FeedbackRow]:
        """Attribute an inspected shard to its configuration or to its worker alone."""
        settings, key = self.settings.feedback, event.subject
        row = rows.get(key) or FIRST
        watch = NodeWatch(
            settings.nodes, key, row.delivered, lambda name: rows.get(NODE + name, FIRST).node, event.recorded_us
        )
        quality, said, known = row.quality, tuple[Payload, ...](), state_of(states, key).quality_score
        match event.data:
            case QualityScoreUpdated(shard=shard, score=score):
                if shard.worker is not None:
                    watch.score(shard.worker, score)
                if known is not None:
                    quality, said = apply_quality(row.quality, known, settings, event.recorded_us)
            case ParityChecked(worker=worker, checked=checked, failures=failures):
                reason = f"{failures} of {checked} games of {key} differ from the rules"
                if not (failures and worker is not None and watch.is_at_fault(worker, reason)):
                    quality, said = apply_parity(row.quality, checked, failures, settings.quality)
                if quality.blocked and not row.quality.blocked:
                    accused = [name for name, one in rows.items() if one.node.broken == key and one.node.quarantines]
                    for name in sorted(accused):  # because rows change their order at a restart, and ids depend on it
                        watch.release(name.removeprefix(NODE), f"others break the rules of {key} as well")
            case NodeProbed(worker=str(worker), score=score):
                watch.probe(worker, score)
        changed: dict[str, FeedbackRow | None] = {
            NODE + name: rows.get(NODE + name, FIRST).replace(node=one) for name, one in watch.changed.items()
        }
        inspected = event.cause if isinstance(event.data, QualityScoreUpdated) else row.inspected
        update = {"quality": quality, "delivered": watch.delivered, "inspected": inspected}
        changed[key] = row.replace(**update)
        return Step(changed, tuple([Emission(payload) for payload in (*said, *watch.said)]))

    def _ask(self, row: FeedbackRow, key: str, awaited: Awaited) -> tuple[FeedbackRow, Sequence[Emission]]:
        seed = derive_seed(self.settings.seed, key, "evaluation", awaited.model, awaited.attempts)
        request = EvaluationRequested(purpose="rating", model=awaited.model, step=awaited.step, seed=seed)
        return row.replace(awaited=awaited), (Emission(request),)

    def _check(
        self, row: FeedbackRow, state: FeedbackState, event: Event[Payload]
    ) -> tuple[FeedbackRow, Sequence[Emission]]:
        """Look for a stall or a pause; overdue evaluations void the rating history."""
        look = Look(
            now=event.recordedtime,
            now_us=event.recorded_us,
            history=() if row.overdue else state.elo_history,
            evaluated=row.evaluated,
            paused_by=row.inspected if row.quality.intensity == "paused" else None,
        )
        boost, emissions = check_stall(row.boost, look, self.settings.feedback.stall)
        return row if boost is row.boost else row.replace(boost=boost), emissions

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
        for config in self.settings.configs:  # because rows change their order at a restart, and ids depend on it
            row = rows.get(config.key) or FIRST
            row = row.replace(rated_us=now_us if row.rated_us is None else row.rated_us + off_us)
            row, overdue = self._missed(row, now_us)
            row, found = self._check(row, state_of(states, config.key), event)
            changed[config.key] = row
            emissions += [emission._replace(subject=config.key) for emission in (*overdue, *found)]
        return Step(changed, tuple(emissions))

    def _missed(self, row: FeedbackRow, now_us: int) -> tuple[FeedbackRow, Sequence[Emission]]:
        """Emit EVALUATION_OVERDUE once per gap in evaluations."""
        assert row.rated_us is not None  # the sweep has just set it
        hours = (now_us - row.rated_us) / US / SECONDS_PER_HOUR
        if row.overdue or hours < self.settings.feedback.stall.window_hours:
            return row, ()
        model, attempts = (row.awaited.model, row.awaited.attempts) if row.awaited else (None, 0)
        overdue = EvaluationOverdue(hours=hours, model=model, attempts=attempts)
        return row.replace(overdue=True), (Emission(overdue, evidence=row.evaluated),)


def _row_of(data: Payload, subject: str) -> str:
    """Return the key of the row that an event is about: a worker's, or its subject's."""
    return NODE + data.worker if isinstance(data, NodeQuarantined | NodeReleased) else subject


def _seen(row: FeedbackRow, event: Event[Payload]) -> FeedbackRow:
    """Return the row after an own decision was recorded; its effect is already in the row."""
    unseen = tuple(one for one in row.unseen if one != event.id)
    if not isinstance(event.data, ExplorationBoost):
        return row.replace(unseen=unseen)
    return row.replace(unseen=unseen, boost=row.boost.replace(set_by=event.cause))


def _adopted(decision: NodeQuarantined | NodeReleased, now_us: int) -> NodeRow:
    """Go on from a quarantine that somebody else began or ended."""
    return NodeRow(times_us=(now_us,), quarantines=int(isinstance(decision, NodeQuarantined)))
