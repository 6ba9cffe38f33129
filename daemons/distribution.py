"""The distributor: verifies each new current model in the store, and deletes superseded models."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from app.controllers import Controller, States
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
    Row,
    Step,
    handles,
)
from daemons.jobs import Job, Json, Worker
from daemons.spec import DaemonSpec

KEPT = 20
"""Number of latest current models kept per configuration; members of the league are kept too."""

SPARED = 20
"""Number of latest rejected candidates kept until the next distribution. An operator may promote one."""

DELAY = 2
"""Number of promotions until a model that left the league is deleted. Earlier requests still name the model."""

US = 1_000_000
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 30.0, 1800.0
"""Bounds of the pause after a failed distribution, which doubles with each failure in a row."""


class Wanted(Row, frozen=True):
    """The model to distribute, with its step; ``None``: the job only deletes overdue models."""

    model: ModelHash | None
    step: int


DistributionJob = Job[Wanted]


class Kept(Row, frozen=True):
    """One configuration's models.

    Attributes:
        kept: the latest current models, oldest first.
        members: models in the league.
        leaving: models that left the league, each with the number of promotions until its deletion.
        superseded: models to delete with the next distribution.
        overdue: models to delete without waiting for a distribution.
        cause: the decision behind the waiting job, or the job's latest failure; ``None``: no job waits.
        wanted: the waiting job's request.
        failures: number of failures of the waiting job in a row.
        retry_us: earliest time of the waiting job's next attempt; ``None``: at once.
    """

    kept: tuple[ModelHash, ...]
    members: tuple[ModelHash, ...]
    leaving: dict[ModelHash, int]
    superseded: tuple[ModelHash, ...]
    overdue: tuple[ModelHash, ...]
    cause: Cause | None
    wanted: Wanted | None
    failures: int
    retry_us: int | None


EMPTY = Kept(
    kept=(), members=(), leaving={}, superseded=(), overdue=(), cause=None, wanted=None, failures=0, retry_us=None
)


Rows = Mapping[str, Kept]


class Distributor(Worker[Wanted], Controller):
    """Runs the backend's ``distribute`` for each model that became current.

    When many candidates have been rejected, it deletes all but the latest, because they would fill the disk.
    """

    name: ClassVar[str] = "Distributor"
    row: ClassVar[type[Kept]] = Kept
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({DistributionFailed, ModelDistributed})

    @handles(ClockTick)
    def ticked(self, rows: Rows, event: Event[ClockTick], states: States) -> Step[Kept]:
        """End those pauses after failures whose time is up."""
        due = [key for key, row in rows.items() if row.retry_us is not None and row.retry_us <= event.recorded_us]
        return Step({key: rows[key].replace(retry_us=None) for key in due})

    @handles(ModelPromoted, ModelRolledBack)
    def became_current(
        self, rows: Rows, event: Event[ModelPromoted] | Event[ModelRolledBack], states: States
    ) -> Step[Kept]:
        """Distribute the new current model; the replaced one stays in the store, for diagnosis."""
        row, data = rows.get(event.subject, EMPTY), event.data
        model = data.model if isinstance(data, ModelPromoted) else data.to_model
        row = _with_current(row, model, promoted=isinstance(data, ModelPromoted))
        wanted = Wanted(model=model, step=data.step)
        return Step({event.subject: row.replace(cause=event.cause, wanted=wanted, failures=0, retry_us=None)})

    @handles(PromotionRejected)
    def rejected(self, rows: Rows, event: Event[PromotionRejected], states: States) -> Step[Kept]:
        """Mark a rejected candidate for deletion: at the next distribution, or once too many wait."""
        row = rows.get(event.subject, EMPTY)
        if event.data.model in (*row.kept, *row.members):
            return Step()
        superseded = (*row.superseded, event.data.model)
        distributing = row.wanted is not None and row.wanted.model is not None
        if distributing or len(superseded) < 2 * SPARED:
            return Step({event.subject: row.replace(superseded=superseded)})
        row = row.replace(superseded=superseded[-SPARED:], overdue=superseded[:-SPARED])
        return Step({event.subject: row.replace(cause=event.cause, wanted=Wanted(model=None, step=event.data.step))})

    @handles(ModelDistributed)
    def distributed(self, rows: Rows, event: Event[ModelDistributed], states: States) -> Step[Kept]:
        """Drop the decision that was carried out."""
        row = rows.get(event.subject, EMPTY)
        if not _waits_for(row, event.data.model):
            return Step()
        return Step({event.subject: row.replace(superseded=(), cause=None, wanted=None, failures=0, retry_us=None)})

    @handles(DistributionFailed)
    def distribution_failed(self, rows: Rows, event: Event[DistributionFailed], states: States) -> Step[Kept]:
        """Pause before a retry. The failure becomes its cause, so that each attempt's facts have ids of their own."""
        row, data = rows.get(event.subject, EMPTY), event.data
        if not _waits_for(row, data.model):
            return Step()
        later_us = event.recorded_us + round(data.retry_seconds * US)
        return Step({event.subject: row.replace(cause=event.cause, failures=row.failures + 1, retry_us=later_us)})

    @handles(CheckpointAdded, CheckpointRetired)
    def league_changed(
        self, rows: Rows, event: Event[CheckpointAdded] | Event[CheckpointRetired], states: States
    ) -> Step[Kept]:
        """Keep members of the league; delete retired ones later, unless they are kept for another reason."""
        row, model = rows.get(event.subject, EMPTY), event.data.model
        others = tuple(member for member in row.members if member != model)
        leaving = {gone: left for gone, left in row.leaving.items() if gone != model}
        if isinstance(event.data, CheckpointAdded):
            return Step({event.subject: row.replace(members=(*others, model), leaving=leaving)})
        if model not in row.kept:
            leaving |= {model: DELAY}
        return Step({event.subject: row.replace(members=others, leaving=leaving)})

    @staticmethod
    def pending(rows: Rows) -> Sequence[tuple[Cause, Kept]]:
        """Return the waiting decisions, oldest first. A failed one is left out during its pause."""
        waiting = [(row.cause, row) for row in rows.values() if row.cause and row.retry_us is None]
        return sorted(waiting, key=lambda one: one[0].sequence)

    def job(self, cause: Cause, pending: Kept, states: States) -> DistributionJob:
        """Return the job that carries out a decision."""
        wanted = pending.wanted
        assert wanted is not None  # a row with a cause says what is wanted
        discard = pending.overdue if wanted.model is None else pending.superseded
        spec: Json = {"store": self.place.store, "model": wanted.model, "discard": list(discard)}
        return Job(
            cause,
            wanted,
            self.backend(cause).distribute,
            (spec,),
            self.settings.deadlines.distribution_seconds,
            context={"failures": pending.failures},
        )

    def completed(self, job: DistributionJob, result: Json) -> tuple[Payload, ...]:
        """Report the node that the model is ready on."""
        wanted = job.request
        if wanted.model is None:
            return ()
        return (ModelDistributed(model=wanted.model, step=wanted.step, nodes=(self.place.node,)),)

    def failed(self, job: DistributionJob, error: FlyballError) -> tuple[Payload, ...]:
        """Report that the current model can't be distributed. A failure to delete only is not reported."""
        wanted = job.request
        if wanted.model is None:
            return ()
        failures: int = job.context["failures"]
        fact = DistributionFailed(
            model=wanted.model,
            step=wanted.step,
            attempt=failures + 1,
            retry_seconds=min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(failures, 32)),
            error=f"{error} Restore the store from a backup, or roll back to a model that it holds: "
            "flyball emit MODEL_ROLLED_BACK",
        )
        return (fact,)


def _waits_for(row: Kept, model: ModelHash) -> bool:
    """Return whether the waiting job is to distribute this model."""
    return row.wanted is not None and row.wanted.model == model


def _with_current(row: Kept, current: ModelHash, *, promoted: bool) -> Kept:
    """Add the current model. Mark models for deletion that are neither among the latest nor in the league."""
    latest = (*(model for model in row.kept if model != current), current)
    kept, older = latest[-KEPT:], latest[:-KEPT]
    waiting = {model: left - promoted for model, left in row.leaving.items() if model not in kept}
    let_go = (*(model for model in older if model not in row.members), *(m for m, left in waiting.items() if not left))
    return row.replace(
        kept=kept,
        leaving={model: left for model, left in waiting.items() if left},
        superseded=tuple(model for model in (*row.overdue, *row.superseded, *let_go) if model != current),
        overdue=(),
    )


DAEMON = DaemonSpec("distribution", "brings promoted models to the nodes", worker=Distributor, capacity=1)
