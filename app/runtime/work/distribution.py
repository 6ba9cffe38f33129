"""The distributor: brings promoted models to the nodes, verified, and lets superseded ones go."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from app.core import FlyballError, ModelHash
from app.events import (
    Cause,
    Event,
    ModelDistributed,
    ModelPromoted,
    Payload,
    PromotionRejected,
    Step,
    Value,
)
from app.runtime.work.worker import Job, Json, QuietWorker

DistributionJob = Job[ModelPromoted]
KEPT = 20
"""Promoted models kept per configuration, the current one included."""


class Kept(Value):
    """One configuration's models: those kept, oldest first, those to let go, and the promotion that waits."""

    kept: tuple[ModelHash, ...]
    superseded: tuple[ModelHash, ...]
    cause: Cause | None
    promotion: ModelPromoted | None


EMPTY = Kept(kept=(), superseded=(), cause=None, promotion=None)


class Distributor(QuietWorker[ModelPromoted]):
    """Runs ``app.store.distribution:distribute`` for each promoted model."""

    name: ClassVar[str] = "Distributor"
    row: ClassVar[type[Kept]] = Kept
    reads: ClassVar[frozenset[type[Payload]]] = frozenset({ModelPromoted, PromotionRejected, ModelDistributed})
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({ModelDistributed})

    def step(self, rows: Mapping[str, Kept], event: Event[Payload]) -> Step[Kept]:
        """Take up promotions, note which models nobody needs any more."""
        row = rows.get(event.subject, EMPTY)
        match event.data:
            case ModelPromoted() as promotion:
                changed = _promoted(row, promotion).model_copy(update={"cause": event.cause, "promotion": promotion})
                return Step({event.subject: changed})
            case PromotionRejected(model=model) if model not in row.kept:
                return Step({event.subject: row.model_copy(update={"superseded": (*row.superseded, model)})})
            case ModelDistributed(model=model) if row.promotion and row.promotion.model == model:
                return Step(
                    {event.subject: row.model_copy(update={"superseded": (), "cause": None, "promotion": None})}
                )
        return Step()

    def jobs(self, rows: Mapping[str, Kept]) -> Iterable[DistributionJob]:
        """Return the promotions that wait."""
        for row in rows.values():
            if row.cause and row.promotion:
                spec: Json = {
                    "store": self.place.store,
                    "model": row.promotion.model,
                    "discard": list(row.superseded),
                }
                yield Job(row.cause, row.promotion, "app.store.distribution:distribute", spec)

    def completed(self, job: DistributionJob, result: Json) -> tuple[Payload, ...]:  # noqa: ARG002 - nothing but done
        """Say where the model is ready."""
        promotion = job.request
        return (ModelDistributed(model=promotion.model, step=promotion.step, nodes=(self.place.node,)),)

    def failed(self, job: DistributionJob, error: FlyballError) -> tuple[Payload, ...]:
        """Refuse to go on: a promoted model that can't be read needs a person."""
        raise FlyballError(
            f"The promoted model {job.request.model} cannot be distributed: {error}",
            hint="Restore the store from a backup, or request a rollback.",
        )


def _promoted(row: Kept, promotion: ModelPromoted) -> Kept:
    kept = (*(model for model in row.kept if model != promotion.model), promotion.model)
    return row.model_copy(update={"kept": kept[-KEPT:], "superseded": (*row.superseded, *kept[:-KEPT])})
