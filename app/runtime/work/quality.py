"""The quality monitor: looks at every shard before anything is trained on it.

Which shards came before is part of what an inspection is given, and follows from the journal alone: a monitor that was
killed, or that has lost its state, compares a shard with the same ones.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from app.core import FlyballError, ShardKey
from app.engine import JobFailed
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

REMEMBERED = 256
"""How many shards of each configuration are remembered by their keys."""


class InspectionRow(Value):
    """A shard that waits for its inspection, under its request; or what was delivered, under its configuration.

    Attributes:
        cause: the shard's delivery; a configuration has none.
        played: what was delivered.
        earlier: the configuration's latest shards, oldest first; with a shard that waits, those before it.
    """

    cause: Cause | None = None
    played: SelfplayComplete | None = None
    earlier: tuple[ShardKey, ...] = ()


class QualityMonitor(QuietWorker[SelfplayComplete]):
    """Runs ``app.selfplay.inspection:inspect`` on each new shard."""

    name: ClassVar[str] = "QualityMonitor"
    row: ClassVar[type[InspectionRow]] = InspectionRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset({SelfplayComplete, QualityScoreUpdated, QualityDegraded})
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({QualityScoreUpdated, QualityDegraded, ParityChecked})

    def step(self, rows: Mapping[str, InspectionRow], event: Event[Payload]) -> Step[InspectionRow]:
        """Take up new shards, drop those that have their verdict."""
        match event.data:
            case SelfplayComplete(request_id=request) as played:
                earlier = rows.get(event.subject, InspectionRow()).earlier
                delivered = tuple(dict.fromkeys((*earlier, played.shard.key)))[-REMEMBERED:]
                return Step(
                    {
                        request: InspectionRow(cause=event.cause, played=played, earlier=earlier),
                        event.subject: InspectionRow(earlier=delivered),
                    }
                )
            case QualityScoreUpdated(request_id=done) | QualityDegraded(request_id=done) if done in rows:
                return Step({done: None})
        return Step()

    def jobs(self, rows: Mapping[str, InspectionRow]) -> Iterable[Inspection]:
        """Return the shards that wait, oldest first."""
        waiting = [(row.cause, row.played, row.earlier) for row in rows.values() if row.cause and row.played]
        for cause, played, earlier in sorted(waiting, key=lambda one: one[0].recorded_us):
            spec: Json = {
                "store": self.place.store,
                "config": self.config_json(cause),
                "shard": played.shard.key,
                "model": played.shard.model,
                "earlier": list(earlier),
                "seed": played.shard.seed,
            }
            yield Job(cause, played, "app.selfplay.inspection:inspect", (spec,))

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
        """Say that the shard is unfit: missing, damaged, not what it claims to be, or delivered before."""
        played = job.request
        reason = f"{error.kind}: {error.summary}" if isinstance(error, JobFailed) else str(error)
        return (QualityDegraded(request_id=played.request_id, shard=played.shard.key, reason=reason),)
