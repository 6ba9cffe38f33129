"""The quality monitor: looks at every shard before anything is trained on it."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from app.core import FlyballError
from app.events import (
    Cause,
    Event,
    ParityChecked,
    Payload,
    QualityDegraded,
    QualityScoreUpdated,
    SelfplayComplete,
    Step,
    Value,
)
from app.runtime.work.worker import Job, Json, QuietWorker

Inspection = Job[SelfplayComplete]


class InspectionPending(Value):
    """A shard that waits for its inspection."""

    cause: Cause
    played: SelfplayComplete


class QualityMonitor(QuietWorker[SelfplayComplete]):
    """Runs ``app.selfplay.inspection:inspect`` on each new shard."""

    name: ClassVar[str] = "QualityMonitor"
    row: ClassVar[type[InspectionPending]] = InspectionPending
    reads: ClassVar[frozenset[type[Payload]]] = frozenset({SelfplayComplete, QualityScoreUpdated, QualityDegraded})
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({QualityScoreUpdated, QualityDegraded, ParityChecked})

    def step(self, rows: Mapping[str, InspectionPending], event: Event[Payload]) -> Step[InspectionPending]:
        """Take up new shards, drop those that have their verdict."""
        match event.data:
            case SelfplayComplete(request_id=request) as played:
                return Step({request: InspectionPending(cause=event.cause, played=played)})
            case QualityScoreUpdated(request_id=done) | QualityDegraded(request_id=done) if done in rows:
                return Step({done: None})
        return Step()

    def jobs(self, rows: Mapping[str, InspectionPending]) -> Iterable[Inspection]:
        """Return the shards that wait, oldest first."""
        for row in sorted(rows.values(), key=lambda row: row.cause.recorded_us):
            spec: Json = {
                "store": self.place.store,
                "config": self.config_json(row.cause),
                "shard": row.played.shard.key,
                "seed": row.played.shard.seed,
            }
            yield Job(row.cause, row.played, "app.selfplay.inspection:inspect", spec)

    def completed(self, job: Inspection, result: Json) -> tuple[Payload, ...]:
        """Say how good the shard is; one whose games don't replay is unfit."""
        played, failures = job.request, result["failures"]
        request, shard = played.request_id, played.shard
        parity = ParityChecked(request_id=request, shard=shard.key, checked=result["checked"], failures=len(failures))
        if failures:
            return parity, QualityDegraded(request_id=request, shard=shard.key, reason=f"parity: {failures[0]}")
        score, components = result["score"], result["components"]
        return parity, QualityScoreUpdated(request_id=request, shard=shard, score=score, components=components)

    def failed(self, job: Inspection, error: FlyballError) -> tuple[Payload, ...]:
        """Say that the shard is unfit: missing, damaged or not what it claims to be."""
        played = job.request
        return (QualityDegraded(request_id=played.request_id, shard=played.shard.key, reason=str(error)),)
