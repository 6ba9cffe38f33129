"""Facts about a run and this machine, on which checks decide. ``None`` means unknown, never zero."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from flyball.app.bus.keys import Key
from flyball.app.config import RunSettings
from flyball.app.events import Event
from flyball.app.journal.ports import DatabaseState
from flyball.app.status.configs import ConfigRow
from flyball.app.status.status import ProcessEnd, Status
from flyball.daemons.shipping import Shipping


@dataclass(frozen=True, slots=True)
class Problem:
    """An error met while facts were gathered: what is wrong, and a ``hint`` at what to do about it."""

    what: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system of a folder. ``inodes`` are the free ones; ``None`` where they are not counted."""

    path: Path
    bytes: int
    free_bytes: int
    inodes: int | None


@dataclass(frozen=True, slots=True)
class StoreUse:
    """Size of a store in a folder, and its bound.

    ``forecast_bytes`` is what the run will need; ``None`` if it was not estimated. If ``deletes``, the run itself
    deletes what nothing needs.
    """

    bytes: int
    most_bytes: int
    forecast_bytes: int | None
    deletes: bool


@dataclass(frozen=True, slots=True)
class Growth:
    """Size and growth of the journal.

    ``bytes`` are those of its file and its archive. ``live_events`` are in the file, and ``limit`` is what should stay.
    ``is_local`` is False for a journal in a database, which takes no room here.
    """

    bytes: int
    archive_bytes: int
    events: int
    live_events: int
    limit: int
    events_per_hour: float | None
    is_local: bool = True


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """The run's broker, asked from this machine.

    Attributes:
        endpoint: its address.
        listens: a process accepts connections there.
        held: `flyball up` runs in the run folder.
        problem: why it gave no answer; ``None``: it answered.
        refused: the answer was that this machine's key is not admitted.
    """

    endpoint: str
    listens: bool
    held: bool
    problem: Problem | None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that checks decide on.

    Attributes:
        now: this machine's time of day.
        node: this machine's name.
        settings: problems of the settings.
        gpu: why a device in the settings is missing.
        has_gpu: the machine has one; ``uses_gpu``: the settings of a kind of job name one.
        keys: problems of the files of keys.
        admitted: the keys that the broker admits, on the head.
        disks: of the run folder and of a store that is a folder elsewhere.
        outbox_bytes: sizes of the files of unsent events, by daemon; ``outbox_limit`` bounds each.
        broker: ``None`` if the settings, and so its address, are unusable.
        status: of the run, ``None`` if neither the journal nor the broker gives it. ``configs`` and ``run`` are the
            rows and settings behind it.
        recent: the latest events of the types in ``RECENT``, in order.
        recorded: time of the last event.
        damage: of the journal. ``missing``: files of its archive.
        unreadable: why this user cannot read the journal, which may be sound.
        concerns: why the journal's database server cannot be used.
        database: state of that server; ``None`` for a journal in a file, and where it cannot be read.
        idle_head: address of that one of two heads whose broker does not serve; empty: there is one head.
        set_aside: files that belong to another history of the journal.
        growth: ``None`` on a machine without the journal.
        shipping: ``None`` if the journal is to be shipped nowhere, or is not here.
        unfolded, refused: numbers of dead letters, of recorded and of refused events.
        store: why the store cannot be used. ``store_use``: of a store in a folder.
        models: damage of current models, by configuration; with --deep, of all blobs under the name "store".
        ends: of daemons' processes.
        broker_end: the broker's latest failure, on the head.
        text_servers: servers of text by address, each with the reason why it does not answer, if it does not.
    """

    now: datetime
    node: str
    settings: tuple[Problem, ...] = ()
    gpu: Problem | None = None
    has_gpu: bool = False
    uses_gpu: bool = False
    keys: tuple[Problem, ...] = ()
    admitted: tuple[Key, ...] = ()
    disks: tuple[Disk, ...] = ()
    outbox_bytes: Mapping[str, int] = field(default_factory=dict)
    outbox_limit: int = 0
    broker: BrokerAnswer | None = None
    status: Status | None = None
    configs: Mapping[str, ConfigRow] = field(default_factory=dict)
    run: RunSettings | None = None
    recent: tuple[Event[Any], ...] = ()
    recorded: datetime | None = None
    damage: tuple[Problem, ...] = ()
    missing: tuple[Problem, ...] = ()
    unreadable: Problem | None = None
    concerns: tuple[Problem, ...] = ()
    database: DatabaseState | None = None
    idle_head: str = ""
    set_aside: tuple[Path, ...] = ()
    growth: Growth | None = None
    shipping: Shipping | None = None
    unfolded: int = 0
    refused: int = 0
    store: Problem | None = None
    store_use: StoreUse | None = None
    models: Mapping[str, Problem] = field(default_factory=dict)
    ends: tuple[ProcessEnd, ...] = ()
    broker_end: ProcessEnd | None = None
    text_servers: Mapping[str, Problem | None] = field(default_factory=dict)
