"""FeedbackLoopController: requests evaluations, and reacts to stalls and data quality.

A rating costs several times the games of a gate, and successive champions differ by little. So once evaluations have
taken their share of a configuration's worker time, a gauntlet rates a candidate only if it can tell something: at the
beginning of a lineage, while champions gain much, after some verdicts, and when the league may admit it.
The others begin with their gate.

Without an evaluation for the whole stall window, improvement is unknown. That is not a plateau, and exploration would
not bring an evaluation. So EVALUATION_OVERDUE is emitted once, and the status shows a remedy.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from statistics import fmean
from typing import Any, ClassVar

from flyball.app.controllers.bad_nodes import Delivered, NodeRow, NodeWatch
from flyball.app.controllers.controller import Controller, Watched
from flyball.app.controllers.data_quality import QualityRow, apply_parity, apply_quality, watched_quality
from flyball.app.controllers.feedback_fold import longest_between_sweeps
from flyball.app.controllers.stall import check_stall, watched_gain
from flyball.app.controllers.state import FeedbackState, States, state_of
from flyball.app.core import SECOND_US, SECONDS_PER_HOUR, ModelHash, derive_seed
from flyball.app.events import (
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
    handles,
)

MAX_ATTEMPTS = 3
"""Most requests for the evaluation of one model."""

MOST_UNRATED = 3
"""Most promotions in a row without a rating: with five, ratings are further from a round robin (ADR-018)."""

MOST_REJECTED = 5
"""Most rejections in a row without a rating, which stalls are found by. No time is set, as windows follow ratings."""

OVERDUE_WINDOWS = 3.0
"""Windows without a rating after which evaluations are overdue, up to the longest window: busy minutes are no fault."""

MUCH_ELO = 100.0
"""Gain of a champion from which the next candidate is rated: where some are unrated in between, games are one-sided."""

SWEEP = ""
"""Key of the row with the time of the last check of all configurations (the sweep)."""

NODE = "node:"
"""Prefix of the keys of workers' rows."""


class Awaited(Row, frozen=True):
    """The model whose evaluation is awaited. ``attempts`` is the number of requests for the evaluation."""

    model: ModelHash
    step: int
    attempts: int


class FeedbackRow(Row, frozen=True):
    """The controller's row of one configuration, or of one worker (``node``).

    Attributes:
        awaited: the model whose evaluation is awaited.
        rated_us: time of its last rating, or when it was first seen; shifted by the time in which the run was off.
        overdue: EVALUATION_OVERDUE was emitted since the last evaluation.
        evaluated: the last evaluation.
        inspected: the last inspected shard.
        checked_us: when it was last checked for a stall.
    """

    awaited: Awaited | None = None
    quality: QualityRow = QualityRow()
    delivered: tuple[Delivered, ...] = ()
    node: NodeRow = NodeRow()
    swept_us: int = 0
    rated_us: int | None = None
    overdue: bool = False
    evaluated: Cause | None = None
    inspected: Cause | None = None
    checked_us: int = 0


FIRST = FeedbackRow()
"""The default row, before any event about the configuration."""


Rows = Mapping[str, FeedbackRow]


class FeedbackLoopController(Controller):
    """Owns the knobs that answer stalls and data quality.

    The knobs are the exploration boost, the self-play rate, training intensity and block, and the quarantine of
    workers.
    """

    name: ClassVar[str] = "FeedbackLoopController"
    row: ClassVar[type[FeedbackRow]] = FeedbackRow
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

    @handles(TrainingCompleted)
    def trained(self, rows: Rows, event: Event[TrainingCompleted], states: States) -> Step[FeedbackRow]:
        """Request the new model's rating, or its gate if a rating is not due yet.

        Nothing is requested if another candidate awaits its verdict.
        """
        key, data, state = event.subject, event.data, state_of(states, event.subject)
        row = rows.get(key) or FIRST
        if state.lineage.candidate not in (None, data.model):
            return Step()
        if not self._is_rating_due(event, states):
            seed = derive_seed(self.settings.seed, key, "evaluation", data.model, 0)
            gate = EvaluationRequested(purpose="gate", model=data.model, step=data.step, seed=seed)
            return Step({key: row.replace(awaited=None)}, (Emission(gate),))
        return self._request(row, key, Awaited(model=data.model, step=data.step, attempts=1))

    @handles(EvaluationFailed)
    def evaluation_failed(self, rows: Rows, event: Event[EvaluationFailed], states: States) -> Step[FeedbackRow]:
        """Request a failed evaluation again, up to ``MAX_ATTEMPTS`` requests in all."""
        row, data = rows.get(event.subject) or FIRST, event.data
        awaited = row.awaited
        if (
            data.purpose != "rating"
            or awaited is None
            or awaited.model != data.model
            or awaited.attempts >= MAX_ATTEMPTS
        ):
            return Step()
        return self._request(row, event.subject, awaited.replace(attempts=awaited.attempts + 1))

    @handles(EvaluationCompleted)
    def evaluated(self, rows: Rows, event: Event[EvaluationCompleted], states: States) -> Step[FeedbackRow]:
        """Look for a stall after each rating."""
        row, data, key = rows.get(event.subject) or FIRST, event.data, event.subject
        if data.purpose != "rating":
            return Step()
        awaited = None if row.awaited and row.awaited.model == data.model else row.awaited
        row = row.replace(awaited=awaited, rated_us=event.recorded_us, overdue=False, evaluated=event.cause)
        row, emissions = self._check_stall(row, state_of(states, key), event)
        return Step({key: row}, tuple(emissions))

    @handles(QualityScoreUpdated)
    def scored(self, rows: Rows, event: Event[QualityScoreUpdated], states: States) -> Step[FeedbackRow]:
        """Set penalty and intensity by the configuration's quality. The shard's worker is judged, too."""
        row, data, settings = rows.get(event.subject) or FIRST, event.data, self.settings.feedback
        state, watch = state_of(states, event.subject), self._watch(rows, row, event)
        quality, payloads = row.quality, tuple[Payload, ...]()
        if data.shard.worker is not None:
            watch.score(data.shard.worker, data.score)
        if state.quality_score is not None:
            quality, payloads = apply_quality(quality, state, settings, event.recorded_us)
        return _inspection_step(rows, row.replace(quality=quality, inspected=event.cause), watch, event, payloads)

    @handles(ParityChecked)
    def parity_checked(self, rows: Rows, event: Event[ParityChecked], states: States) -> Step[FeedbackRow]:
        """Block training where games break the rules. Training is not blocked if only one worker is at fault."""
        row, data, key = rows.get(event.subject) or FIRST, event.data, event.subject
        state, watch = state_of(states, key), self._watch(rows, row, event)
        quality, payloads = row.quality, tuple[Payload, ...]()
        broken: str | None = ""
        if data.failures:
            broken = watch.judge_broken(data.worker, f"{data.failures} of {data.checked} games")
        if broken is not None:
            quality, payloads = apply_parity(quality, state, broken, self.settings.feedback.quality)
        if any(isinstance(payload, TrainingBlockedByQuality) for payload in payloads):
            accused = [name for name, other in rows.items() if other.node.broken == key and other.node.quarantines]
            for name in sorted(accused):  # because rows change their order at a restart, and ids depend on it
                watch.release(name.removeprefix(NODE), f"others break the rules of {key} as well")
        return _inspection_step(rows, row.replace(quality=quality), watch, event, payloads)

    @handles(NodeProbed)
    def probed(self, rows: Rows, event: Event[NodeProbed], states: States) -> Step[FeedbackRow]:
        """Judge a worker in quarantine by its probe."""
        row, data = rows.get(event.subject) or FIRST, event.data
        watch = self._watch(rows, row, event)
        if data.worker is not None:
            watch.probe(data.worker, data.score)
        return _inspection_step(rows, row, watch, event, ())

    @handles(NodeQuarantined, NodeReleased)
    def quarantine_decided(
        self, rows: Rows, event: Event[NodeQuarantined] | Event[NodeReleased], states: States
    ) -> Step[FeedbackRow]:
        """Adopt a quarantine that an operator began or ended."""
        key = NODE + event.data.worker
        begun = int(isinstance(event.data, NodeQuarantined))
        node = NodeRow(times_us=(event.recorded_us,), quarantines=begun)
        return Step({key: (rows.get(key) or FIRST).replace(node=node)})

    @handles(TrainingBlockedByQuality, TrainingUnblocked)
    def block_decided(
        self, rows: Rows, event: Event[TrainingBlockedByQuality] | Event[TrainingUnblocked], states: States
    ) -> Step[FeedbackRow]:
        """Hold a block that an operator set, until an operator lifts it."""
        row, held = rows.get(event.subject) or FIRST, isinstance(event.data, TrainingBlockedByQuality)
        return Step({event.subject: row.replace(quality=row.quality.replace(held=held, clean_checks=0))})

    @handles(ClockTick)
    def ticked(self, rows: Rows, event: Event[ClockTick], states: States) -> Step[FeedbackRow]:
        """Check all configurations once per check period. Stalls and boosts also occur without evaluations."""
        now_us, last = event.recorded_us, (rows.get(SWEEP) or FIRST).swept_us
        if now_us - last < self.settings.feedback.stall.check_seconds * SECOND_US:
            return Step()
        off_us = now_us - last if timedelta(microseconds=now_us - last) > longest_between_sweeps(self.settings) else 0
        changed: dict[str, FeedbackRow | None] = {SWEEP: FeedbackRow(swept_us=now_us)}
        emissions = list[Emission]()
        for config in self.settings.configs:  # not in rows' order: a restart changes it, and ids depend on it
            row = rows.get(config.key) or FIRST
            row = row.replace(rated_us=now_us if row.rated_us is None else row.rated_us + off_us)
            state = state_of(states, config.key)
            row, overdue = self._emit_overdue(row, state, now_us)
            row, checked = self._check_stall(row, state, event)
            changed[config.key] = row
            emissions += [emission._replace(subject=config.key) for emission in (*overdue, *checked)]
        return Step(changed, tuple(emissions))

    def watches(self, rows: Rows, states: States, key: str) -> Sequence[Watched]:
        """Return the gain and the quality of data. See ``Controller.watches``."""
        row, state, feedback = rows.get(key) or FIRST, state_of(states, key), self.settings.feedback
        return (watched_gain(state, feedback.stall), *watched_quality(row.quality, state, feedback))

    def _is_rating_due(self, event: Event[TrainingCompleted], states: States) -> bool:
        """Return whether a rating of a new candidate can tell something that is worth its games."""
        state, data, feedback = state_of(states, event.subject), event.data, self.settings.feedback
        lineage = state.lineage
        latest = state.elo_history[-1] if state.elo_history else None
        if latest is None or state.elo_gain is None or latest.root != lineage.root:
            return True  # little is known of this lineage
        if lineage.gain >= MUCH_ELO:
            return True
        if data.parent != lineage.current_model:
            return True  # the gate will refuse it
        admission = self.settings.league.admission
        if data.step % admission.recent_every == 0 or data.step % admission.anchor_every == 0:
            return True  # the league may admit it, and admits rated models alone
        if state.consecutive_failures and state.consecutive_failures % MOST_REJECTED == 0:
            return True
        if latest.base not in [champion.model for champion in lineage.champions[-MOST_UNRATED:]]:
            return True
        # At least the mean counts, because a game that is done gets little time, and only ratings show that it is done.
        mean = fmean(state_of(states, config.key).worker_time.total for config in self.settings.configs)
        spent = state.worker_time
        return spent.evaluation < feedback.lifecycle.evaluation_share * max(spent.total, mean)

    def _emit_overdue(
        self, row: FeedbackRow, state: FeedbackState, now_us: int
    ) -> tuple[FeedbackRow, Sequence[Emission]]:
        """Emit EVALUATION_OVERDUE once per gap in evaluations. A plateaued configuration is rated rarely."""
        assert row.rated_us is not None  # the sweep has just set it
        stall = self.settings.feedback.stall
        hours, windows = (now_us - row.rated_us) / SECOND_US / SECONDS_PER_HOUR, OVERDUE_WINDOWS * state.time_scale
        if row.overdue or hours < stall.window_hours * (1.0 if state.plateaued else min(1.0, windows)):
            return row, ()
        model, attempts = (row.awaited.model, row.awaited.attempts) if row.awaited else (None, 0)
        overdue = EvaluationOverdue(hours=hours, model=model, attempts=attempts)
        return row.replace(overdue=True), (Emission(overdue, evidence=row.evaluated),)

    def _check_stall(
        self, row: FeedbackRow, state: FeedbackState, event: Event[Payload]
    ) -> tuple[FeedbackRow, Sequence[Emission]]:
        """Look for stalls and pauses, at most once per check period."""
        now_us, settings = event.recorded_us, self.settings.feedback.stall
        if now_us - row.checked_us < settings.check_seconds * SECOND_US:
            return row, ()
        emissions = check_stall(
            state, settings, now_us, rated_by=row.evaluated, inspected_by=row.inspected, overdue=row.overdue
        )
        return row.replace(checked_us=now_us), emissions

    def _request(self, row: FeedbackRow, key: str, awaited: Awaited) -> Step[FeedbackRow]:
        seed = derive_seed(self.settings.seed, key, "evaluation", awaited.model, awaited.attempts)
        request = EvaluationRequested(purpose="rating", model=awaited.model, step=awaited.step, seed=seed)
        return Step({key: row.replace(awaited=awaited)}, (Emission(request),))

    def _watch(self, rows: Rows, row: FeedbackRow, event: Event[Any]) -> NodeWatch:
        """Return the watch over the workers of the event's configuration."""

        def load(worker: str) -> NodeRow:
            return rows.get(NODE + worker, FIRST).node

        return NodeWatch(self.settings.feedback.nodes, event.subject, row.delivered, load, event.recorded_us)


def _inspection_step(
    rows: Rows, row: FeedbackRow, watch: NodeWatch, event: Event[Any], payloads: Sequence[Payload]
) -> Step[FeedbackRow]:
    """Return the step that changes the rows of a configuration and of the workers that ``watch`` has changed."""
    changed: dict[str, FeedbackRow | None] = {
        NODE + name: rows.get(NODE + name, FIRST).replace(node=node) for name, node in watch.changed.items()
    }
    changed[event.subject] = row.replace(delivered=watch.delivered)
    return Step(changed, tuple(Emission(payload) for payload in (*payloads, *watch.payloads)))
