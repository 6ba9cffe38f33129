"""The distributor, which verifies each new current model in the store, and deletes superseded models.

It may run on every node. The one on the head, where the broker is, verifies the model in the store, and deletes. Its
MODEL_DISTRIBUTED lets the loop go on. The others then bring the model into their node's cache and acknowledge that by
MODEL_CACHED, for which nothing waits (ADR-012).

Work that fails may have met a model that was damaged since its distribution, so the head then verifies the current
model again. If the store has lost it, the next attempt looks for the latest champion that can be read, and the
lifecycle rolls back to that one.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import ClassVar

from msgspec import field

from flyball.app.controllers import Controller, Lineage, States, state_of
from flyball.app.core import BROKER, SECOND_US, EventId, FlyballError, ModelHash, backoff, is_broker
from flyball.app.events import (
    Cause,
    CheckpointAdded,
    CheckpointRetired,
    ClockTick,
    DaemonFailed,
    DaemonReady,
    DaemonStopped,
    DistributionFailed,
    DistributionLate,
    Emission,
    EvaluationFailed,
    Event,
    ModelCached,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    NodeLost,
    NodeReturned,
    Payload,
    PromotionRejected,
    Row,
    SelfplayFailed,
    Step,
    TrainingFailed,
    handles,
)
from flyball.app.job_specs import DistributionResult
from flyball.app.store.blobs import model_remedy
from flyball.daemons.jobs import Job, Worker, only
from flyball.daemons.spec import DaemonSpec

KEPT = 20
"""Number of latest current models kept per configuration; members of the league are kept too."""

SPARED = 20
"""Number of latest rejected candidates kept until the next distribution. An operator may promote one."""

OVERDUE = 5 * SPARED
"""Most overdue models kept in a row. No fact tells that they were deleted, so they are deleted again with the next."""

DELAY = 2
"""Number of promotions until a model that left the league is deleted. Earlier requests still name the model."""

NAME = "distribution"
"""The daemon's name."""

LATE_SECONDS = 60.0
"""Time after which a node without the distributed model is reported."""

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 30.0, 1800.0
"""Bounds of the pause after a failed distribution, which doubles with each failure in a row."""

VERIFY_SECONDS = 300.0
"""Least time between two verifications of a distributed model."""

LOST = frozenset({"lost_blob", "no_model"})
"""Codes of errors of a model that the store lacks or has changed; others may be the store's own."""


class DistributionRequest(Row, frozen=True):
    """The model to distribute, with its step. Without a model (``None``), the job only deletes overdue models."""

    model: ModelHash | None
    step: int


DistributionJob = Job[DistributionRequest]


class DistributorRow(Row, frozen=True):
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
        head: the broker's node; ``None``: not known yet, and taken to be this node.
        nodes: live nodes with a distributor, and the time since when each could have fetched the distributed model.
        have: nodes that have acknowledged it; all of them while the next one is not distributed yet.
        late: nodes that were reported for it.
        lost: the store lacks the waiting job's model, or has changed it.
        verified_us: when the distributed model was last verified again, because of work that failed.
        verifies: the waiting job verifies the distributed model again.
    """

    kept: tuple[ModelHash, ...] = ()
    members: tuple[ModelHash, ...] = ()
    leaving: dict[ModelHash, int] = field(default_factory=dict)
    superseded: tuple[ModelHash, ...] = ()
    overdue: tuple[ModelHash, ...] = ()
    cause: Cause | None = None
    wanted: DistributionRequest | None = None
    failures: int = 0
    retry_us: int | None = None
    head: str | None = None
    nodes: dict[str, int] = field(default_factory=dict)
    have: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    lost: bool = False
    verified_us: int = 0
    verifies: bool = False


EMPTY = DistributorRow()


class LostModel(FlyballError):
    """The store lacks the current model or has changed it; ``readable`` is the latest earlier champion that it has."""

    def __init__(self, error: FlyballError, readable: ModelHash | None) -> None:
        which = f"The champion {readable[:8]}" if readable else "No earlier champion"
        super().__init__(f"{error.message} {which} can be read.", code=error.code)
        self.readable = readable


Rows = Mapping[str, DistributorRow]


class Distributor(Worker[DistributionRequest], Controller):
    """Runs the backend's ``distribute`` for each model that became current.

    When many candidates have been rejected, it deletes all but the latest, because they would fill the disk.
    """

    name: ClassVar[str] = "Distributor"
    row: ClassVar[type[DistributorRow]] = DistributorRow
    returns: ClassVar[type[DistributionResult]] = DistributionResult
    emits: ClassVar[frozenset[type[Payload]]] = frozenset(
        {DistributionFailed, DistributionLate, ModelCached, ModelDistributed}
    )

    @property
    def id_namespace(self) -> str:
        """See ``Worker.id_namespace``: each node's distributor acknowledges the same model."""
        return f"{self.name}@{self.identity.node}"

    def _is_head(self, row: DistributorRow) -> bool:
        return row.head in (None, self.identity.node)

    def _lacks(self, row: DistributorRow) -> bool:
        """Return whether this node has not acknowledged the distributed model."""
        return not self._is_head(row) and self.identity.node not in row.have

    @handles(ClockTick)
    def ticked(self, rows: Rows, event: Event[ClockTick], states: States) -> Step[DistributorRow]:
        """End pauses whose time is up, and report late nodes; the same report of all distributors counts once."""
        changed, emissions = dict[str, DistributorRow | None](), list[Emission]()
        for key, row in sorted(rows.items()):
            playing = state_of(states, key).lineage.playing
            if row.retry_us is not None and row.retry_us <= event.recorded_us:
                changed[key] = row.replace(retry_us=None)
            if playing is not None and row.kept[-1:] == (playing,) and (late := _late(row, event.recorded_us)):
                seconds = (event.recorded_us - min(row.nodes[node] for node in late)) / SECOND_US
                emissions.append(Emission(DistributionLate(model=playing, nodes=late, seconds=seconds), key))
                changed[key] = (changed.get(key) or row).replace(late=(*row.late, *late))
        return Step(changed, tuple(emissions))

    @handles(DaemonReady, NodeReturned)
    def ready(
        self, rows: Rows, event: Event[DaemonReady] | Event[NodeReturned], states: States
    ) -> Step[DistributorRow]:
        """Note the broker's node, and each node with a distributor."""
        daemon, node = event.data.daemon, event.data.node
        if daemon == BROKER and is_broker(event.source):
            return self._change_all(rows, lambda row: row.replace(head=node))
        if daemon == NAME:
            return self._change_all(rows, lambda row: row.replace(nodes={**row.nodes, node: event.recorded_us}))
        return Step()

    @handles(DaemonFailed, DaemonStopped, NodeLost)
    def gone(
        self, rows: Rows, event: Event[DaemonFailed] | Event[DaemonStopped] | Event[NodeLost], states: States
    ) -> Step[DistributorRow]:
        """Drop a node whose distributor is gone."""
        if event.data.daemon != NAME:
            return Step()
        node = event.data.node
        return self._change_all(
            rows, lambda row: row.replace(nodes={name: us for name, us in row.nodes.items() if name != node})
        )

    def _change_all(self, rows: Rows, change: Callable[[DistributorRow], DistributorRow]) -> Step[DistributorRow]:
        return Step({config.key: change(rows.get(config.key, EMPTY)) for config in self.settings.configs})

    @handles(ModelPromoted, ModelRolledBack)
    def became_current(
        self, rows: Rows, event: Event[ModelPromoted] | Event[ModelRolledBack], states: States
    ) -> Step[DistributorRow]:
        """Distribute the new current model. The replaced model stays in the store, for diagnosis."""
        row, data = rows.get(event.subject, EMPTY), event.data
        model = data.model if isinstance(data, ModelPromoted) else data.to_model
        row = _with_current(row, model, promoted=isinstance(data, ModelPromoted))
        return Step({event.subject: _with_job(row, event.cause, DistributionRequest(model=model, step=data.step))})

    @handles(SelfplayFailed, TrainingFailed, EvaluationFailed)
    def work_failed(
        self, rows: Rows, event: Event[SelfplayFailed] | Event[TrainingFailed] | Event[EvaluationFailed], states: States
    ) -> Step[DistributorRow]:
        """Verify the distributed model again on the head, at most once in ``VERIFY_SECONDS``."""
        row, lineage = rows.get(event.subject, EMPTY), state_of(states, event.subject).lineage
        current, soon = lineage.current, event.recorded_us - row.verified_us < VERIFY_SECONDS * SECOND_US
        if not self._is_head(row) or row.wanted is not None or soon or lineage.distributed is None or current is None:
            return Step()
        if current.model != lineage.playing:
            return Step()
        row = _with_job(row, event.cause, DistributionRequest(model=current.model, step=current.step))
        return Step({event.subject: row.replace(verifies=True, verified_us=event.recorded_us)})

    @handles(PromotionRejected)
    def rejected(self, rows: Rows, event: Event[PromotionRejected], states: States) -> Step[DistributorRow]:
        """Mark a rejected candidate for deletion at the next distribution, or once too many candidates wait."""
        row = rows.get(event.subject, EMPTY)
        if event.data.model in (*row.kept, *row.members):
            return Step()
        superseded = (*row.superseded, event.data.model)
        distributing = row.wanted is not None and row.wanted.model is not None
        if distributing or len(superseded) < 2 * SPARED:
            return Step({event.subject: row.replace(superseded=superseded)})
        overdue = (*row.overdue, *superseded[:-SPARED])[-OVERDUE:]
        row = row.replace(superseded=superseded[-SPARED:], overdue=overdue)
        request = DistributionRequest(model=None, step=event.data.step)
        return Step({event.subject: row.replace(cause=event.cause, wanted=request)})

    @handles(ModelDistributed)
    def distributed(self, rows: Rows, event: Event[ModelDistributed], states: States) -> Step[DistributorRow]:
        """Drop the decision that was carried out. Nodes that do not have the model still wait for their job."""
        row, data = rows.get(event.subject, EMPTY), event.data
        if row.kept[-1:] != (data.model,):
            return Step()
        nodes = dict.fromkeys(row.nodes, event.recorded_us)
        row = row.replace(superseded=(), nodes=nodes, have=data.nodes, late=())
        return Step({event.subject: row if self._lacks(row) else _without_job(row)})

    @handles(ModelCached)
    def cached(self, rows: Rows, event: Event[ModelCached], states: States) -> Step[DistributorRow]:
        """Note that a node has the distributed model."""
        row, data = rows.get(event.subject, EMPTY), event.data
        if row.kept[-1:] != (data.model,):
            return Step()
        row = row.replace(have=tuple(dict.fromkeys((*row.have, data.node))))
        return Step({event.subject: row if self._lacks(row) else _without_job(row)})

    @handles(DistributionFailed)
    def distribution_failed(self, rows: Rows, event: Event[DistributionFailed], states: States) -> Step[DistributorRow]:
        """Pause before the retry of a failed distribution.

        The failure becomes the cause of the retry, so that each attempt's facts have ids of their own.
        """
        row, data = rows.get(event.subject, EMPTY), event.data
        if row.wanted is None or row.wanted.model != data.model or data.node not in (None, self.identity.node):
            return Step()
        later_us, failures = event.recorded_us + round(data.retry_seconds * SECOND_US), row.failures + 1
        row = row.replace(cause=event.cause, failures=failures, retry_us=later_us, lost=bool(data.damaged))
        return Step({event.subject: row})

    @handles(CheckpointAdded, CheckpointRetired)
    def league_changed(
        self, rows: Rows, event: Event[CheckpointAdded] | Event[CheckpointRetired], states: States
    ) -> Step[DistributorRow]:
        """Keep members of the league. A retired member is deleted later, unless it is kept for another reason."""
        row, model = rows.get(event.subject, EMPTY), event.data.model
        others = tuple(member for member in row.members if member != model)
        leaving = {member: left for member, left in row.leaving.items() if member != model}
        if isinstance(event.data, CheckpointAdded):
            return Step({event.subject: row.replace(members=(*others, model), leaving=leaving)})
        if model not in row.kept:
            leaving |= {model: DELAY}
        return Step({event.subject: row.replace(members=others, leaving=leaving)})

    @staticmethod
    def pending(rows: Rows) -> Sequence[tuple[Cause, DistributorRow]]:
        """Return the waiting decisions, oldest first. A failed decision is left out during its pause."""
        waiting = [(row.cause, row) for row in rows.values() if row.cause and row.retry_us is None]
        return sorted(waiting, key=lambda pair: pair[0].sequence)

    def jobs(self, rows: Rows, states: States, leased: Container[EventId] | None = None) -> Iterator[DistributionJob]:
        """See ``Worker.jobs``. On other nodes than the head, a model waits until the head has found it in the store."""
        return super().jobs(
            {
                key: row
                for key, row in rows.items()
                if self._is_head(row) or (row.wanted and row.wanted.model == state_of(states, key).lineage.playing)
            },
            states,
            leased,
        )

    def job(self, cause: Cause, pending: DistributorRow, states: States) -> DistributionJob:
        """Return the job of a decision. The head alone deletes, and looks for an earlier champion of a lost model."""
        request, is_head = pending.wanted, self._is_head(pending)
        assert request is not None  # because ``pending`` returns only rows with a cause
        discard = pending.overdue if request.model is None else () if pending.verifies else pending.superseded
        spec = self.spec(
            cause,
            model=request.model,
            discard=list(discard) if is_head else [],
            needed=sorted({model for state in states.values() for model in _needed(state.lineage)}),
        )
        earlier, looks = list[ModelHash](), is_head and pending.lost
        if looks:
            champions = state_of(states, cause.subject or "").lineage.champions
            earlier = [champion.model for champion in reversed(champions[:-1])]
        return Job(
            cause,
            request,
            self.backend(cause).distribute,
            (spec, *({**spec, "model": model, "discard": []} for model in earlier)),
            self.settings.deadlines.distribution_seconds,
            gather=(lambda parts: _current_of(parts, earlier)) if looks else only,
            memo={"failures": pending.failures, "is_head": is_head, "verifies": pending.verifies},
        )

    def completed(self, job: DistributionJob, result: DistributionResult, seconds: float) -> tuple[Payload, ...]:
        """Report the node that the model is ready on."""
        request = job.request
        if request.model is None:
            return ()
        if not job.memo["is_head"] or job.memo["verifies"]:
            return (ModelCached(model=request.model, step=request.step, node=self.identity.node),)
        return (ModelDistributed(model=request.model, step=request.step, nodes=(self.identity.node,)),)

    def failed(self, job: DistributionJob, error: FlyballError) -> tuple[Payload, ...]:
        """Report that the current model can't be distributed. A job that only deletes reports no failure."""
        request = job.request
        if request.model is None:
            return ()
        failures: int = job.memo["failures"]
        readable, text = error.readable if isinstance(error, LostModel) else None, str(error)
        if error.code in LOST and readable is None:
            text = f"{error.message} {model_remedy(job.cause.subject or '', request.model)}"
        fact = DistributionFailed(
            model=request.model,
            step=request.step,
            node=self.identity.node,
            attempt=failures + 1,
            retry_seconds=backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, failures),
            damaged=error.code in LOST,
            readable=readable,
            error=text,
        )
        return (fact,)


def _current_of(parts: Sequence[DistributionResult | FlyballError], earlier: Sequence[ModelHash]) -> DistributionResult:
    """Return the result for the current model, the first of the parts.

    Raises ``LostModel`` with the first of ``earlier`` that reads if the store has lost the current model, otherwise the
    error.
    """
    current, *others = parts
    if not isinstance(current, FlyballError):
        return current
    if current.code not in LOST:
        raise current
    readable = (model for model, part in zip(earlier, others, strict=True) if not isinstance(part, FlyballError))
    raise LostModel(current, next(readable, None))


def _with_job(row: DistributorRow, cause: Cause, request: DistributionRequest) -> DistributorRow:
    """Let a job wait for its first attempt."""
    return row.replace(cause=cause, wanted=request, failures=0, retry_us=None, lost=False, verifies=False)


def _late(row: DistributorRow, now_us: int) -> tuple[str, ...]:
    """Return the unreported nodes that have lacked the distributed model too long."""
    due_us, others = now_us - LATE_SECONDS * SECOND_US, {*row.have, *row.late}
    return tuple(sorted(node for node, since_us in row.nodes.items() if since_us <= due_us and node not in others))


def _without_job(row: DistributorRow) -> DistributorRow:
    """Drop the waiting job."""
    return row.replace(cause=None, wanted=None, failures=0, retry_us=None, lost=False, verifies=False)


def _needed(lineage: Lineage) -> Iterator[ModelHash]:
    """Iterate over the models that nodes play now or next, which their caches have to keep."""
    return (model for model in (lineage.playing, lineage.current_model) if model is not None)


def _with_current(row: DistributorRow, current: ModelHash, *, promoted: bool) -> DistributorRow:
    """Add the current model, and mark for deletion those neither among the latest nor in the league."""
    latest = (*(model for model in row.kept if model != current), current)
    kept, older = latest[-KEPT:], latest[:-KEPT]
    waiting = {model: left - promoted for model, left in row.leaving.items() if model not in kept}
    unneeded = (
        *(model for model in older if model not in row.members),
        *(m for m, left in waiting.items() if not left),
    )
    return row.replace(
        kept=kept,
        leaving={model: left for model, left in waiting.items() if left},
        superseded=tuple(model for model in (*row.overdue, *row.superseded, *unneeded) if model != current),
        overdue=(),
        have=tuple(row.nodes),
    )


DAEMON = DaemonSpec(NAME, "brings promoted models to the nodes", worker=Distributor, capacity=1)
