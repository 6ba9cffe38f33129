"""The scheduler's rows, and the fair queue in them.

Weighted fair queueing (Demers, Keshav and Shenker 1989, with the start tags of Goyal, Vin and Cheng 1996): a
configuration that wants games waits with the tag at which its last turn finished (or shortly before virtual time, if it
was away), and finishes its turn at tag + cost / weight, the cost being the worker seconds of a turn. The least tag goes
first. Whatever the weights within their bounds, every waiting configuration's turn comes, and shares of worker time are
as the weights.
"""

from msgspec import field

from app.core import ConfigKey, EventId, ModelHash
from app.events import Cause, MatchmakingUpdated, Row
from app.feedback.lines import Page
from app.feedback.needs import Needs

WAITING, PACED, FREE, SPARE = "waiting", "paced", "free", "spare"
"""Lines: configurations that wait for a worker, by tag, and for their time, by it; idle places of workers, one entry
each, and places behind a request that runs, in the order in which they became free. Places that are none any more are
passed over when they are drawn."""


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
        candidate: the latest trained model, which awaits its verdict.
        out: the requests that are under way, oldest first.
        rows_per_game: of the latest shard; ``None`` before the first.
        requested_us: when the latest request was made.
        gap_seconds: mean time between requests without a penalty; ``None`` before the second.
        finish: virtual time at which its last turn was over.
        seconds: worker time of its last request.
        queued: it waits for a worker, or for its time.
        due_us: the time that it waits for.
        cause: the latest event about it that changed anything here: what its requests follow from when a tick, or
            another configuration's event, gives it its turn.
    """

    model: ModelHash | None = None
    candidate: ModelHash | None = None
    fresh_rows: int = 0
    requests: int = 0
    out: tuple[Asked, ...] = ()
    rows_per_game: float | None = None
    requested_us: int = 0
    gap_seconds: float | None = None
    finish: float = 0.0
    seconds: float = 1.0
    queued: bool = False
    due_us: int | None = None
    blocked: bool = False
    rate: float = 1.0
    base_temperature: float | None = None
    needs: Needs = Needs()
    cause: Cause | None = None

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
    """What holds for all lines together.

    Attributes:
        virtual: virtual time: the tag of the turn given last.
        sizes: how many wait in each line.
        places: how many places of workers ever became free.
        swept_us: when all workers and requests were last looked at.
    """

    virtual: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)
    places: int = 0
    swept_us: int = 0


class SchedulerRow(Row, frozen=True):
    """One row of the scheduler's table: about a configuration, its matchmaking, a worker, all lines, a page of one."""

    config: ConfigRow | None = None
    worker: WorkerRow | None = None
    queue: QueueRow | None = None
    page: Page | None = None
    matchmaking: MatchmakingUpdated | None = None
