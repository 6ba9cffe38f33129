"""The scheduler's rows, and the fair queue in them.

Weighted fair queueing (Demers, Keshav and Shenker 1989, with the start tags of Goyal, Vin and Cheng 1996): a
configuration that wants games waits with the tag at which its last turn finished (or shortly before virtual time, if it
was away), and finishes its turn at tag + cost / weight, the cost being the worker seconds of a turn. The least tag goes
first. Whatever the weights within their bounds, every waiting configuration's turn comes, and shares of worker time are
as the weights.
"""

from bisect import insort

from app.core import ConfigKey, EventId, ModelHash
from app.events import MatchmakingUpdated, Row
from app.feedback.needs import Needs

Waiting = tuple[float, ConfigKey]


class Asked(Row, frozen=True):
    """A request whose rows have not come yet.

    Attributes:
        worker: who plays it; ``None`` once it was played, or failed.
        at_us: when it was made.
        failed: nothing is to be expected of it any more; the next sweep gives it up.
    """

    request: EventId
    worker: str | None
    at_us: int
    failed: bool = False


class ConfigRow(Row, frozen=True):
    """What the scheduler knows of one configuration.

    Attributes:
        model: the distributed model; without one there is nothing to play with.
        out: the requests that are under way, oldest first.
        rows_per_game: of the latest shard; ``None`` before the first.
        requested_us: when the latest request was made.
        finish: virtual time at which its last turn was over.
        seconds: worker time of its last request.
        queued: it waits for a worker, or for its time.
    """

    model: ModelHash | None = None
    fresh_rows: int = 0
    requests: int = 0
    out: tuple[Asked, ...] = ()
    rows_per_game: float | None = None
    requested_us: int = 0
    finish: float = 0.0
    seconds: float = 1.0
    queued: bool = False
    blocked: bool = False
    rate: float = 1.0
    temperature: float | None = None
    needs: Needs = Needs()

    def asked(self, request: EventId) -> Asked | None:
        """Return a request, if it is under way."""
        return next((one for one in self.out if one.request == request), None)


class WorkerRow(Row, frozen=True):
    """One self-play worker: how much it does at once, for whom, and when it was last heard."""

    node: str
    capacity: int
    serving: tuple[ConfigKey, ...] = ()
    heard_us: int = 0
    lost: bool = False

    @property
    def slots(self) -> int:
        """How many more requests it may be given: one runs, one waits, for each job it can run at once."""
        return 0 if self.lost else max(0, 2 * self.capacity - len(self.serving))

    @property
    def idle(self) -> int:
        """How many of them it would begin at once."""
        return 0 if self.lost else max(0, self.capacity - len(self.serving))


class QueueRow(Row, frozen=True):
    """The queue.

    Attributes:
        virtual: virtual time: the tag of the turn given last.
        waiting: who waits for a worker, sorted by tag.
        paced: who waits for its time, sorted by it.
        free: idle places of workers, one entry each; those that are none any more are passed over when they are drawn.
        spare: the same of places behind a request that runs.
        workers: all workers ever heard.
        swept_us: when all of them were last looked at.
    """

    virtual: float = 0.0
    waiting: tuple[Waiting, ...] = ()
    paced: tuple[tuple[int, ConfigKey], ...] = ()
    free: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    swept_us: int = 0

    def is_due(self, now_us: int) -> bool:
        """Whether somebody's time has come."""
        return bool(self.paced) and self.paced[0][0] <= now_us

    def with_waiting(self, tag: float, key: ConfigKey) -> "QueueRow":
        """Add a configuration to those that wait for a worker."""
        waiting = list(self.waiting)
        insort(waiting, (tag, key))
        return self.model_copy(update={"waiting": tuple(waiting)})

    def with_paced(self, due_us: int, key: ConfigKey) -> "QueueRow":
        """Add a configuration to those that wait for their time."""
        paced = list(self.paced)
        insort(paced, (due_us, key))
        return self.model_copy(update={"paced": tuple(paced)})


class SchedulerRow(Row, frozen=True):
    """One row of the scheduler's table: about a configuration, its matchmaking, a worker, or the queue."""

    config: ConfigRow | None = None
    worker: WorkerRow | None = None
    queue: QueueRow | None = None
    matchmaking: MatchmakingUpdated | None = None
