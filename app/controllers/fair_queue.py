"""The scheduler's rows, and the fair queue in them.

Weighted fair queueing (Demers, Keshav and Shenker 1989, with the start tags of Goyal, Vin and Cheng 1996): a
configuration that wants games waits with the tag at which its last turn finished (or shortly before virtual time, if it
was away), and finishes its turn at tag + cost / weight, the cost being the worker seconds of a turn. The least tag goes
first. Whatever the weights within their bounds, every waiting configuration's turn comes, and shares of worker time are
as the weights.
"""

from collections.abc import Callable

from msgspec import field

from app.controllers.needs import Needs
from app.core import ConfigKey, EventId, ModelHash
from app.events import Cause, MatchmakingUpdated, Row, ShardRef

# Waiting lines in rows of bounded size: a change touches a few rows, however many wait.
#
# Each line is a heap in which a node has 16 children, and the children of one node are one row, its page (d-heaps,
# Johnson 1975): page 0 holds the root, page n + 1 the children of node n. Ten thousand who wait are five levels. Who
# comes out next depends on what is in a line, not on how it came there: of two equal entries it does not matter which.

Entry = tuple[int | float, str]
"""A rank, and who has it. The least rank comes first, of equal ones the lesser name."""

Page = tuple[Entry, ...]
CHILDREN = 16


def page_name(line: str, number: int) -> str:
    """Return what a page is called."""
    return f"{line}:{number}"


class Lines:
    """Some lines as one event changes them.

    Args:
        load: returns the page of this name, an empty one if there is none.
        sizes: how many wait in each line, by its name; a line that is not there is empty.
    """

    def __init__(self, load: Callable[[str], Page], sizes: dict[str, int]) -> None:
        self._load, self._sizes = load, sizes
        self.pages: dict[str, Page] = {}
        """Those that have changed. One that is empty is not there any more."""

    @property
    def sizes(self) -> dict[str, int]:
        """How many wait in each line; another object once a line has changed."""
        return self._sizes

    def first(self, line: str) -> Entry | None:
        """Return who comes next, and leave it there."""
        return self._page(line, 0)[0] if self._sizes.get(line) else None

    def push(self, line: str, rank: float, who: str) -> None:
        """Add somebody."""
        entry, node = (rank, who), self._sizes.get(line, 0)
        self._resize(line, node + 1)
        while node:
            parent = (node - 1) // CHILDREN
            above = self._at(line, parent)
            if above < entry:
                break
            self._put(line, node, above)
            node = parent
        self._put(line, node, entry)

    def pop(self, line: str) -> Entry:
        """Take out who comes next. Raises ``IndexError`` when nobody waits."""
        first, last = self._page(line, 0)[0], self._take_last(line)
        node, size = 0, self._sizes[line]
        while (below := CHILDREN * node + 1) < size:
            children = self._page(line, node + 1)
            least = min(children)
            if last < least:
                break
            self._put(line, node, least)
            node = below + children.index(least)
        if last is not first:
            self._put(line, node, last)
        return first

    def _take_last(self, line: str) -> Entry:
        node = self._sizes[line] - 1
        self._resize(line, node)
        number, _ = _place(node)
        *others, last = self._page(line, number)
        self.pages[page_name(line, number)] = tuple(others)
        return last

    def _resize(self, line: str, size: int) -> None:
        self._sizes = {**self._sizes, line: size}

    def _page(self, line: str, number: int) -> Page:
        name = page_name(line, number)
        page = self.pages.get(name)
        return self._load(name) if page is None else page

    def _at(self, line: str, node: int) -> Entry:
        number, place = _place(node)
        return self._page(line, number)[place]

    def _put(self, line: str, node: int, entry: Entry) -> None:
        number, place = _place(node)
        page = self._page(line, number)
        self.pages[page_name(line, number)] = (*page[:place], entry, *page[place + 1 :])


def _place(node: int) -> tuple[int, int]:
    """Return a node's page and where it is in it."""
    return ((node - 1) // CHILDREN + 1, (node - 1) % CHILDREN) if node else (0, 0)


WAITING, PACED, FREE, SPARE = "waiting", "paced", "free", "spare"
"""Lines: configurations that wait for a worker, by tag, and for their time, by it; idle places of workers, one entry
each, and places behind a request that runs, in the order in which they became free. Places that are none any more are
passed over when they are drawn."""


class Asked(Row, frozen=True):
    """A request without a result.

    Attributes:
        worker: that has it.
        at_us: when it was made.
        seen_us: when it was made, named by a heartbeat, or played, whichever came last.
        probe: its worker is in quarantine, and its rows do not count.
        ended: it was played, or failed, and no longer occupies its worker.
        failed: the next sweep gives it up.
    """

    request: EventId
    worker: str
    at_us: int
    seen_us: int
    probe: bool
    ended: bool = False
    failed: bool = False


class ConfigRow(Row, frozen=True):
    """The scheduler's row of one configuration.

    Attributes:
        model: the distributed model; without one there is nothing to play with.
        candidate: the latest trained model, which awaits its verdict.
        shards: those of the model that are good enough and untrained, oldest first.
        out: the requests that are under way, oldest first.
        good_us: when its latest good shard was inspected.
        failed_at: the worker at which a request failed first since then, but for workers that had paused.
        rows_per_game: of the latest shard; ``None`` before the first.
        requested_us: when the latest request was made.
        gap_seconds: mean time between requests without a penalty; ``None`` before the second.
        finish: virtual time at the end of its last turn.
        seconds: worker time of its last request.
        queued: it waits for a worker, or for its time.
        due_us: the time that it waits for.
        cause: the latest event that changed this row: the evidence of requests that a tick, or another
            configuration's event, triggers.
    """

    model: ModelHash | None = None
    candidate: ModelHash | None = None
    shards: tuple[ShardRef, ...] = ()
    requests: int = 0
    out: tuple[Asked, ...] = ()
    good_us: int = 0
    failed_at: str | None = None
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

    @property
    def fresh_rows(self) -> int:
        """Rows that wait for a training."""
        return sum([shard.rows for shard in self.shards])

    def asked(self, request: EventId) -> Asked | None:
        """Return a request, if it is under way."""
        return next((one for one in self.out if one.request == request), None)


class WorkerRow(Row, frozen=True):
    """One self-play worker: capacity, requests and health.

    Attributes:
        node: where it runs.
        capacity: requests that it plays at once.
        serving: the configurations of its requests, oldest first.
        heard_us: time of its last event.
        holds: the requests that its latest heartbeat named.
        lost: its heartbeats have stopped.
        failures: of its requests in a row.
        failing_us: when the first of them failed.
        pauses: in a row; after a pause it gets one request at a time until one succeeds.
        quarantined: it gets one request at a time, a probe.
        rests_until_us: end of its pause.
    """

    node: str
    capacity: int
    serving: tuple[ConfigKey, ...] = ()
    heard_us: int = 0
    holds: tuple[EventId, ...] = ()
    lost: bool = False
    failures: int = 0
    failing_us: int = 0
    pauses: int = 0
    quarantined: bool = False
    rests_until_us: int | None = None

    @property
    def slots(self) -> int:
        """How many more requests it may be given: one runs, one waits, for each job it can run at once."""
        return self._free(2 * self.capacity)

    @property
    def idle(self) -> int:
        """How many of them it would begin at once."""
        return self._free(self.capacity)

    def _free(self, places: int) -> int:
        if self.lost or self.rests_until_us is not None:
            return 0
        on_trial = self.quarantined or self.pauses > 0
        return max(0, (min(1, places) if on_trial else places) - len(self.serving))


class QueueRow(Row, frozen=True):
    """State shared by all queues.

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
