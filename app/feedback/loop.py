"""FeedbackLoopController: evaluations after trainings, stalls, and what the quality of data calls for (seed 003 §3)."""

from collections.abc import Mapping
from typing import ClassVar

from app.core import ModelHash, derive_id, derive_seed
from app.events import (
    ClockTick,
    Emission,
    EvaluationCompleted,
    EvaluationFailed,
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
from app.feedback.bad_nodes import LATEST, Delivered, NodeRow, NodeWatch
from app.feedback.controller import Controller
from app.feedback.data_quality import US, QualityRow, adopt_block, apply_parity, apply_quality
from app.feedback.stall import BoostRow, adopt_boost, check_stall
from app.feedback.state import FeedbackState, state_of

MAX_ATTEMPTS = 3
"""How often the evaluation of one model is asked for before it is given up."""

SWEEP = ""
"""The row that says when all configurations were last looked at."""

NODE = "node:"
"""What the keys of rows begin with that are about a worker."""


class Awaited(Row, frozen=True):
    """The model whose evaluation is awaited, and how often it was asked for."""

    model: ModelHash
    step: int
    attempts: int

    def may_be_repeated(self, failed: ModelHash) -> bool:
        """Whether it is the evaluation of this model that is awaited, and not tried too often yet."""
        return self.model == failed and self.attempts < MAX_ATTEMPTS


class FeedbackRow(Row, frozen=True):
    """What the controller remembers of one configuration, or of one worker (``node``)."""

    awaited: Awaited | None = None
    boost: BoostRow = BoostRow()
    quality: QualityRow = QualityRow()
    delivered: tuple[Delivered, ...] = ()
    node: NodeRow = NodeRow()
    swept_us: int = 0


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
        if isinstance(event.data, ClockTick):
            return self._sweep(rows, event, states)
        if isinstance(event.data, NodeQuarantined | NodeReleased):
            return Step() if self._is_own(event) else Step(_adopted(event.data))
        if isinstance(event.data, QualityScoreUpdated | ParityChecked | NodeProbed):
            return self._inspected(rows, event, states)
        key = event.subject
        before = rows.get(key) or FIRST
        row, payloads = self._after(before, state_of(states, key), event)
        return Step({} if row is before else {key: row}, tuple([Emission(payload) for payload in payloads]))

    def _after(
        self, row: FeedbackRow, state: FeedbackState, event: Event[Payload]
    ) -> tuple[FeedbackRow, tuple[Payload, ...]]:
        match event.data:
            case TrainingBlockedByQuality() | TrainingUnblocked() as decision if not self._is_own(event):
                blocked = isinstance(decision, TrainingBlockedByQuality)
                return row.model_copy(update={"quality": adopt_block(row.quality, blocked=blocked)}), ()
            case ExplorationBoost() as decision if not self._is_own(event):
                return row.model_copy(update={"boost": adopt_boost(row.boost, decision, event.recorded_us)}), ()
        return self._evaluations(row, state, event)

    def _inspected(  # noqa: C901 - what an inspection says of both sides, in one place
        self, rows: Mapping[str, FeedbackRow], event: Event[Payload], states: Mapping[str, FeedbackState]
    ) -> Step[FeedbackRow]:
        """Hold an inspected shard against its configuration, or against its worker alone."""
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
                    for name in sorted(accused):  # rows are in another order after a restart: ids depend on the order
                        watch.release(name.removeprefix(NODE), f"others break the rules of {key} as well")
            case NodeProbed(worker=str(worker), score=score):
                watch.probe(worker, score)
        changed: dict[str, FeedbackRow | None] = {
            NODE + name: FeedbackRow(node=one) for name, one in watch.changed.items()
        }
        changed[key] = row.model_copy(update={"quality": quality, "delivered": watch.delivered})
        return Step(changed, tuple([Emission(payload) for payload in (*said, *watch.said)]))

    def _is_own(self, event: Event[Payload]) -> bool:
        """Whether a decision was taken here: it was taken in then, and others may have followed before it comes by.

        Ids tell. No event leads to more than two decisions about each configuration, and one about each worker that
        delivered the latest shards.
        """
        cause, most = event.envelope.causationid, 2 * len(self.settings.configs) + LATEST
        return cause is not None and any(event.id == derive_id(self.name, cause, index) for index in range(most))

    def _evaluations(
        self, row: FeedbackRow, state: FeedbackState, event: Event[Payload]
    ) -> tuple[FeedbackRow, tuple[Payload, ...]]:
        awaited = row.awaited
        match event.data:
            case TrainingCompleted(model=model, step=step):
                return self._ask(row, event.subject, Awaited(model=model, step=step, attempts=1))
            case EvaluationFailed(purpose="rating", model=model) if awaited and awaited.may_be_repeated(model):
                again = awaited.model_copy(update={"attempts": awaited.attempts + 1})
                return self._ask(row, event.subject, again)
            case EvaluationCompleted(purpose="rating", model=model):
                done = awaited is not None and awaited.model == model
                return self._check(row.model_copy(update={"awaited": None}) if done else row, state, event)
        return row, ()

    def _ask(self, row: FeedbackRow, key: str, awaited: Awaited) -> tuple[FeedbackRow, tuple[Payload, ...]]:
        seed = derive_seed(self.settings.seed, key, "evaluation", awaited.model, awaited.attempts)
        request = EvaluationRequested(purpose="rating", model=awaited.model, step=awaited.step, seed=seed)
        return row.model_copy(update={"awaited": awaited}), (request,)

    def _check(
        self, row: FeedbackRow, state: FeedbackState, event: Event[Payload]
    ) -> tuple[FeedbackRow, tuple[Payload, ...]]:
        stall, paused = self.settings.feedback.stall, row.quality.intensity == "paused"
        boost, said = check_stall(row.boost, state, stall, event.recordedtime, event.recorded_us, paused=paused)
        return row if boost is row.boost else row.model_copy(update={"boost": boost}), said

    def _sweep(
        self, rows: Mapping[str, FeedbackRow], event: Event[Payload], states: Mapping[str, FeedbackState]
    ) -> Step[FeedbackRow]:
        """Look at all configurations, once per check period: those without evaluations have stalls and boosts too."""
        last = (rows.get(SWEEP) or FIRST).swept_us
        if event.recorded_us - last < self.settings.feedback.stall.check_seconds * US:
            return Step()
        changed: dict[str, FeedbackRow | None] = {SWEEP: FeedbackRow(swept_us=event.recorded_us)}
        emissions = list[Emission]()
        for config in self.settings.configs:  # rows are in another order after a restart: ids depend on the order
            if row := rows.get(config.key):
                after, said = self._check(row, state_of(states, config.key), event)
                emissions += [Emission(payload, config.key) for payload in said]
                if after is not row:
                    changed[config.key] = after
        return Step(changed, tuple(emissions))


def _adopted(decision: NodeQuarantined | NodeReleased) -> dict[str, FeedbackRow]:
    """Go on from a quarantine that somebody else began or ended."""
    quarantines = int(isinstance(decision, NodeQuarantined))
    return {NODE + decision.worker: FeedbackRow(node=NodeRow(quarantines=quarantines))}
