"""The distributor: brings promoted models to the nodes, verified, and lets superseded ones go."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from app.core import FlyballError, ModelHash
from app.events import (
    Cause,
    CheckpointAdded,
    CheckpointRetired,
    ClockTick,
    DistributionFailed,
    Event,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    PromotionRejected,
    Step,
    Value,
)
from daemons.jobs import Job, Json, QuietWorker
from daemons.spec import DaemonSpec

Change = ModelPromoted | ModelRolledBack
Decision = Change | PromotionRejected
DistributionJob = Job[Decision]
KEPT = 20
"""Models kept per configuration that became current last, that one included; members of the league are kept as well."""

SPARED = 20
"""Candidates that were kept out last, and not deleted before the next promotion: an operator may want one after all."""

DELAY = 2
"""Promotions after which a model that left the league is let go: requests that were made before still find it."""

US = 1_000_000
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 30.0, 1800.0
"""Pause after a failed distribution, doubled with each failure in a row."""


class Kept(Value):
    """One configuration's models.

    Attributes:
        kept: those that became current lately, oldest first.
        members: those in the league.
        leaving: those that left it, each with the promotions until it is let go.
        superseded: those to let go with the next distribution.
        overdue: those to let go without one.
        cause: the event that asks for the job that waits, if one does: a decision, or the last failure after it.
        decision: that decision; of a rejection, those overdue are deleted, until something else is decided.
        failures: of its distribution in a row.
        retry_us: the time that its next distribution waits for.
    """

    kept: tuple[ModelHash, ...]
    members: tuple[ModelHash, ...]
    leaving: dict[ModelHash, int]
    superseded: tuple[ModelHash, ...]
    overdue: tuple[ModelHash, ...]
    cause: Cause | None
    decision: Decision | None
    failures: int
    retry_us: int | None


EMPTY = Kept(
    kept=(), members=(), leaving={}, superseded=(), overdue=(), cause=None, decision=None, failures=0, retry_us=None
)


class Distributor(QuietWorker[Decision]):
    """Runs ``app.store.checkpoints:distribute`` for each model that became current.

    And now and then where candidates are kept out again and again: trained every few seconds, they would fill the disk.
    """

    name: ClassVar[str] = "Distributor"
    row: ClassVar[type[Kept]] = Kept
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            CheckpointAdded,
            CheckpointRetired,
            ClockTick,
            DistributionFailed,
            ModelDistributed,
            ModelPromoted,
            ModelRolledBack,
            PromotionRejected,
        }
    )
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({DistributionFailed, ModelDistributed})

    def step(self, rows: Mapping[str, Kept], event: Event[Payload]) -> Step[Kept]:
        """Take up promotions, note which models nobody needs any more."""
        if isinstance(event.data, ClockTick):
            now_us = event.recorded_us
            due = [key for key, row in rows.items() if row.retry_us is not None and row.retry_us <= now_us]
            return Step({key: rows[key].replace(retry_us=None) for key in due})
        row = rows.get(event.subject, EMPTY)
        match event.data:
            case ModelPromoted() | ModelRolledBack() as decision:
                # A model that is replaced stays in the store, for whoever wants to know what was wrong with it.
                changed = {"cause": event.cause, "decision": decision, "failures": 0, "retry_us": None}
                return Step({event.subject: _decided(row, decision).replace(**changed)})
            case PromotionRejected(model=model) as rejection if model not in (*row.kept, *row.members):
                return Step({event.subject: _rejected(row, rejection, event.cause)})
            case ModelDistributed(model=model) if _waits_for(row, model):
                done = {"superseded": (), "cause": None, "decision": None, "failures": 0, "retry_us": None}
                return Step({event.subject: row.replace(**done)})
            case DistributionFailed(model=model, retry_seconds=seconds) if _waits_for(row, model):
                # The failure asks for the next attempt: the facts of each attempt derive their ids from its cause.
                later = event.recorded_us + round(seconds * US)
                again = {"cause": event.cause, "failures": row.failures + 1, "retry_us": later}
                return Step({event.subject: row.replace(**again)})
            case CheckpointAdded() | CheckpointRetired() as change:
                return Step({event.subject: _with_member(row, change)})
        return Step()

    def jobs(self, rows: Mapping[str, Kept]) -> Iterable[DistributionJob]:
        """Return the waiting decisions, oldest first; failed ones only after their pause."""
        waiting = [
            (row.cause, row.decision, row)
            for row in rows.values()
            if row.cause and row.decision and row.retry_us is None
        ]
        for cause, decision, row in sorted(waiting, key=lambda one: one[0].sequence):
            spec: Json = {"store": self.place.store, "model": None, "discard": list(row.overdue)}
            if isinstance(decision, Change):
                spec |= {"model": _target(decision)[0], "discard": list(row.superseded)}
            yield Job(
                cause,
                decision,
                "app.store.checkpoints:distribute",
                (spec,),
                self.settings.deadlines.distribution_seconds,
                context={"failures": row.failures},
            )

    def completed(self, job: DistributionJob, result: Json) -> tuple[Payload, ...]:  # noqa: ARG002 - nothing but done
        """Say where the model is ready."""
        if isinstance(job.request, PromotionRejected):
            return ()
        model, step = _target(job.request)
        return (ModelDistributed(model=model, step=step, nodes=(self.place.node,)),)

    def failed(self, job: DistributionJob, error: FlyballError) -> tuple[Payload, ...]:
        """Report that the current model can't be distributed; retry failed deletions later."""
        if isinstance(job.request, PromotionRejected):
            return ()
        failures: int = job.context["failures"]
        model, step = _target(job.request)
        fact = DistributionFailed(
            model=model,
            step=step,
            attempt=failures + 1,
            retry_seconds=min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(failures, 32)),
            error=f"{error} Restore the store from a backup, or roll back to a model that it holds: "
            "flyball emit MODEL_ROLLED_BACK",
        )
        return (fact,)


def _waits_for(row: Kept, model: ModelHash) -> bool:
    """Return whether the waiting decision makes this model current."""
    return isinstance(row.decision, Change) and _target(row.decision)[0] == model


def _decided(row: Kept, decision: Change) -> Kept:
    """Keep the model that became current longest, and let go who is kept for no other reason."""
    current = _target(decision)[0]
    latest = (*(model for model in row.kept if model != current), current)
    kept, older = latest[-KEPT:], latest[:-KEPT]
    passed = isinstance(decision, ModelPromoted)
    waiting = {model: left - passed for model, left in row.leaving.items() if model not in kept}
    let_go = (*(model for model in older if model not in row.members), *(m for m, left in waiting.items() if not left))
    return row.replace(
        kept=kept,
        leaving={model: left for model, left in waiting.items() if left},
        superseded=tuple(model for model in (*row.overdue, *row.superseded, *let_go) if model != current),
        overdue=(),
    )


def _rejected(row: Kept, rejection: PromotionRejected, cause: Cause) -> Kept:
    """Let a candidate go with the next promotion; where that does not come, those before the latest without it."""
    superseded = (*row.superseded, rejection.model)
    if isinstance(row.decision, Change) or len(superseded) < 2 * SPARED:
        return row.replace(superseded=superseded)
    overdue = {"superseded": superseded[-SPARED:], "overdue": superseded[:-SPARED]}
    return row.replace(**overdue, cause=cause, decision=rejection)


def _with_member(row: Kept, change: CheckpointAdded | CheckpointRetired) -> Kept:
    """Keep who enters the league; let go later who leaves it and is kept for no other reason."""
    others = tuple(model for model in row.members if model != change.model)
    leaving = {model: left for model, left in row.leaving.items() if model != change.model}
    if isinstance(change, CheckpointAdded):
        return row.replace(members=(*others, change.model), leaving=leaving)
    if change.model not in row.kept:
        leaving |= {change.model: DELAY}
    return row.replace(members=others, leaving=leaving)


def _target(decision: Change) -> tuple[ModelHash, int]:
    """Return the model that became current, and its step."""
    return (decision.model if isinstance(decision, ModelPromoted) else decision.to_model), decision.step


DAEMON = DaemonSpec("distribution", "brings promoted models to the nodes", worker=Distributor, capacity=1)
