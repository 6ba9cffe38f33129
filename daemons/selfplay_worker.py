"""The self-play worker: plays the games that are requested from it."""

from collections.abc import Container, Iterator, Mapping, Sequence

from flyball.app.controllers import Controller, States, state_of
from flyball.app.controllers.needs import is_fresh
from flyball.app.core import EventId, FlyballError
from flyball.app.events import (
    Cause,
    Event,
    ModelRolledBack,
    NodeQuarantined,
    Payload,
    Row,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
    ShardRef,
    Step,
    handles,
)
from flyball.app.job_specs import SelfplayResult
from flyball.daemons.jobs import Job, Worker
from flyball.daemons.spec import DaemonSpec

SelfplayJob = Job[SelfplayRequested]


class SelfplayPending(Row, frozen=True):
    """A request for games that waits for its result."""

    cause: Cause
    request: SelfplayRequested


Rows = Mapping[str, SelfplayPending]


STALE_EVENTS = 1_000_000
"""Events after which a request is dropped; its lease ended long before."""


class SelfplayWorker(Worker[SelfplayRequested], Controller):
    """Runs the backend's ``play`` for the requests addressed to it.

    The rows hold the requests of all workers, so that one snapshot serves all nodes. It is a controller, so that its
    fold knows the current models, and drops stale rollbacks as the scheduler's does.
    """

    name = "SelfplayWorker"
    kind = "selfplay"
    row = SelfplayPending
    returns = SelfplayResult
    emits = frozenset({SelfplayComplete, SelfplayFailed})

    @handles(SelfplayRequested)
    def requested(self, rows: Rows, event: Event[SelfplayRequested], states: States) -> Step[SelfplayPending]:
        """Queue a request, and drop the worker's outdated ones.

        A request is outdated if its model was replaced and that model's rows no longer count. Very old requests of all
        workers are dropped, too.
        """
        request, key = event.data, event.subject
        state, replays = state_of(states, key), self.settings.config(key).replays
        stale = event.sequence - STALE_EVENTS

        def is_dropped(row: SelfplayPending) -> bool:
            model = row.request.model
            replaced = model != request.model and not replays and not is_fresh(state, self.settings, model)
            return (
                row.cause.subject == key and replaced and row.request.worker == request.worker
            ) or row.cause.sequence < stale

        dropped = [name for name, row in rows.items() if is_dropped(row)]
        return Step({**dict.fromkeys(dropped), event.id: SelfplayPending(cause=event.cause, request=request)})

    @handles(NodeQuarantined)
    def quarantined(self, rows: Rows, event: Event[NodeQuarantined], states: States) -> Step[SelfplayPending]:
        """Drop the worker's requests, because other workers receive them."""
        return Step({name: None for name, row in rows.items() if row.request.worker == event.data.worker})

    @handles(ModelRolledBack)
    def rolled_back(self, rows: Rows, event: Event[ModelRolledBack], states: States) -> Step[SelfplayPending]:
        """Drop the configuration's requests. The scheduler makes other requests. A quarantine's probe goes on."""
        vain = [name for name, row in rows.items() if row.cause.subject == event.subject and not row.request.probe]
        return Step(dict.fromkeys(vain))

    @handles(SelfplayComplete, SelfplayFailed)
    def ended(
        self, rows: Rows, event: Event[SelfplayComplete] | Event[SelfplayFailed], states: States
    ) -> Step[SelfplayPending]:
        """Drop a finished request."""
        done = event.data.request_id
        return Step({done: None}) if done in rows else Step()

    def jobs(self, rows: Rows, states: States, leased: Container[EventId] | None = None) -> Iterator[SelfplayJob]:
        """Iterate over the jobs of this worker's requests; see ``Worker.jobs``."""
        own = {name: row for name, row in rows.items() if row.request.worker == self.identity.name}
        return super().jobs(own, states, leased)

    @staticmethod
    def pending(rows: Rows) -> Sequence[tuple[Cause, SelfplayRequested]]:
        """Return the pending requests, oldest first."""
        return sorted([(row.cause, row.request) for row in rows.values()], key=lambda pair: pair[0].sequence)

    def job(self, cause: Cause, pending: SelfplayRequested, states: States) -> SelfplayJob:
        """Return the job that plays a request's games."""
        spec = self.spec(
            cause,
            model=pending.model,
            lineups=[lineup.model_dump(mode="json") for lineup in pending.lineups],
            games=pending.games,
            seed=pending.seed,
            temperature=pending.temperature,
            worker=self.identity.name,
        )
        deadline_seconds = self.settings.deadlines.selfplay_seconds
        return Job(cause, pending, self.backend(cause).play, (spec,), deadline_seconds)

    def completed(self, job: SelfplayJob, result: SelfplayResult, seconds: float) -> tuple[Payload, ...]:
        """Report the games played, and the shard that holds their rows."""
        request = job.request
        others = dict.fromkeys(name for lineup in request.lineups for name in lineup.opponents if name != request.model)
        shard = ShardRef(
            key=result.shard,
            worker=self.identity.name,
            rows=result.rows,
            games=result.games,
            model=request.model,
            seed=request.seed,
        )
        complete = SelfplayComplete(
            request_id=job.id,
            probe=request.probe,
            shard=shard,
            opponents=tuple(others),
            temperature=request.temperature,
            mean_length=result.mean_length,
            truncated_games=result.truncated,
            seconds=result.seconds,
        )
        return (complete,)

    def failed(self, job: SelfplayJob, error: FlyballError) -> tuple[Payload, ...]:
        """Report that the games could not be played."""
        return (SelfplayFailed(request_id=job.id, worker=self.identity.name, error=str(error)),)


DAEMON = DaemonSpec("selfplay_worker", "plays games", worker=SelfplayWorker, capacity=1)
