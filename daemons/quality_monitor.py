"""The quality monitor: looks at every shard before anything is trained on it.

Which shards came before is part of what an inspection is given, and follows from the journal alone: a monitor that was
killed, or that has lost its state, compares a shard with the same ones.

With each inspection those shards are deleted that nobody will train on any more, whether trainings come or not: while
training is blocked or paused games go on, and they must not fill the disk.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from app.core import FlyballError, ShardKey
from app.engine import JobFailed
from app.events import (
    Cause,
    Event,
    InspectionFailed,
    NodeProbed,
    NodeQuarantined,
    ParityChecked,
    Payload,
    QualityDegraded,
    QualityScoreUpdated,
    Row,
    SelfplayComplete,
    Step,
    handles,
)
from daemons.jobs import Job, Json, Worker
from daemons.shard_retention import Shelf
from daemons.spec import DaemonSpec

Inspection = Job[SelfplayComplete]

REMEMBERED = 256
"""How many shards of each configuration are remembered by their keys."""

UNFIT = frozenset({"DamagedBlob", "ForeignShard", "MissingBlob", "RepeatedShard"})
"""Names of errors caused by the shard: missing, damaged, mislabelled, or a duplicate."""

STAYING = 16
"""How many shards before each stay in any case: ``app.play.inspection`` compares its games with them."""


class InspectionRow(Row, frozen=True):
    """A shard that waits for its inspection, under its request; or what was delivered, under its configuration.

    Attributes:
        cause: the shard's delivery; a configuration has none.
        played: what was delivered.
        earlier: the configuration's latest shards, oldest first; with a shard that waits, those before it.
        discard: with a shard that waits, those to delete; a configuration has its shelf.
    """

    cause: Cause | None = None
    played: SelfplayComplete | None = None
    earlier: tuple[ShardKey, ...] = ()
    discard: tuple[ShardKey, ...] = ()
    shelf: Shelf = Shelf()


Rows = Mapping[str, InspectionRow]


class QualityMonitor(Worker[SelfplayComplete]):
    """Runs ``app.play.inspection:inspect`` on each new shard."""

    name: ClassVar[str] = "QualityMonitor"
    row: ClassVar[type[InspectionRow]] = InspectionRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset(
        {InspectionFailed, NodeProbed, ParityChecked, QualityDegraded, QualityScoreUpdated}
    )

    @handles(SelfplayComplete)
    def delivered(self, rows: Rows, event: Event[SelfplayComplete]) -> Step[InspectionRow]:
        """Take up a shard, and hand what its configuration can do without to its inspection."""
        row, played = rows.get(event.subject, InspectionRow()), event.data
        earlier = tuple(dict.fromkeys((*row.earlier, played.shard.key)))[-REMEMBERED:]
        staying = tuple(key for key in row.shelf.spent if key in row.earlier[-STAYING:])
        discard = tuple(key for key in row.shelf.spent if key not in staying)
        waiting = InspectionRow(cause=event.cause, played=played, earlier=row.earlier, discard=discard)
        config = InspectionRow(earlier=earlier, shelf=row.shelf.replace(spent=staying))
        return Step({played.request_id: waiting, event.subject: config})

    @handles(NodeQuarantined)
    def quarantined(self, rows: Rows, event: Event[NodeQuarantined]) -> Step[InspectionRow]:
        """Drop a quarantined worker's uninspected shards; the next inspection deletes them."""
        changed: dict[str, InspectionRow | None] = {}
        for name, row in rows.items():
            if row.cause and row.played and row.played.shard.worker == event.data.worker and not row.played.probe:
                key = row.cause.subject or ""
                config = changed.get(key) or rows[key]
                changed |= {name: None, key: config.replace(shelf=config.shelf.refused(row.played.shard.key))}
        return Step(changed)

    @handles(QualityScoreUpdated, QualityDegraded, InspectionFailed, NodeProbed)
    def judged(self, rows: Rows, event: Event[Any]) -> Step[InspectionRow]:
        """Drop the shard that has its verdict."""
        changed = dict(self.shelved(rows, event).rows)
        if event.data.request_id in rows:
            changed[event.data.request_id] = None
        return Step(changed)

    @handles(*Shelf.trainings)
    def shelved(self, rows: Rows, event: Event[Any]) -> Step[InspectionRow]:
        """Note which shards are needed no more."""
        row = rows.get(event.subject, InspectionRow())
        return Step({event.subject: row.replace(shelf=row.shelf.after(event, self.settings))})

    def jobs(self, rows: Rows) -> Iterable[Inspection]:
        """Return the shards that wait, oldest first."""
        waiting = [(row.cause, row.played, row) for row in rows.values() if row.cause and row.played]
        for cause, played, row in sorted(waiting, key=lambda one: one[0].sequence):
            spec: Json = {
                "store": self.place.store,
                "config": self.config_json(cause),
                "shard": played.shard.key,
                "model": played.shard.model,
                "earlier": list(row.earlier),
                "discard": list(row.discard),
                "seed": played.shard.seed,
            }
            yield Job(
                cause,
                played,
                "app.play.inspection:inspect",
                (spec,),
                self.settings.deadlines.inspection_seconds,
            )

    def completed(self, job: Inspection, result: Json) -> tuple[Payload, ...]:
        """Say how good the shard is; one whose games don't replay is unfit."""
        played, failures, score = job.request, result["failures"], result["score"]
        request, shard = played.request_id, played.shard
        if played.probe:
            return (_unfit(played, f"parity: {failures[0]}") if failures else _probed(played, score, None),)
        parity = ParityChecked(
            request_id=request,
            worker=shard.worker,
            shard=shard.key,
            checked=result["checked"],
            failures=len(failures),
        )
        if failures:
            return parity, _unfit(played, f"parity: {failures[0]}")
        components = result["components"]
        return parity, QualityScoreUpdated(request_id=request, shard=shard, score=score, components=components)

    def failed(self, job: Inspection, error: FlyballError) -> tuple[Payload, ...]:
        """Report that the shard is unfit, or that its inspection failed."""
        played = job.request
        if isinstance(error, JobFailed) and error.kind in UNFIT:
            return (_unfit(played, f"{error.kind}: {error.summary}"),)
        return (InspectionFailed(request_id=played.request_id, shard=played.shard.key, error=str(error)),)


def _unfit(played: SelfplayComplete, reason: str) -> QualityDegraded | NodeProbed:
    """Report an unfit shard, or a bad probe."""
    if played.probe:
        return _probed(played, None, reason)
    shard = played.shard
    return QualityDegraded(request_id=played.request_id, worker=shard.worker, shard=shard.key, reason=reason)


def _probed(played: SelfplayComplete, score: float | None, error: str | None) -> NodeProbed:
    shard = played.shard
    return NodeProbed(request_id=played.request_id, worker=shard.worker, shard=shard.key, score=score, error=error)


DAEMON = DaemonSpec("quality_monitor", "inspects every shard of experience", worker=QualityMonitor, capacity=1)
