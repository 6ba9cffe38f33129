"""The status of a run: its configurations and daemons, folded from events.

A board may be saved beside the journal, so that the next reader continues from it. It is a cache of the journal:
a damaged board, or one of another version or journal, counts as missing.
"""

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Literal

from msgspec import DecodeError, field
from pydantic import ValidationError

from flyball.app.bus.ports import Bus, Present
from flyball.app.config import ForeignSettings, RunSettings
from flyball.app.core import BROKER, SECOND_US, MeanOutcome, ModelHash, Rate, Record, Tabular, flat, named
from flyball.app.events import (
    BY_TYPE,
    CurriculumRebalanced,
    DaemonFact,
    DaemonFailed,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    Event,
    EventVoided,
    Kind,
    NodeDegraded,
    NodeQuarantined,
    NodeRecovered,
    NodeReleased,
    Payload,
    RunConfigured,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.events.rows import Row
from flyball.app.journal import JournalReader, history
from flyball.app.status.configs import CONFIGS_READ, ConfigRow, Progress, fold_configs
from flyball.app.status.next_training import TRAININGS_READ, Trainings
from flyball.app.status.obstacles import waiting_for
from flyball.app.status.summary import show_elo

State = Literal["started", "ready", "degraded", "quarantined", "stopped", "failed", "silent", "gone"]
Presence = Mapping[str, Present]
"""Living and lost daemons, by ``daemon@node``, as the broker knows them."""

TABLE_AGE_US = 5 * SECOND_US
"""Age that a table of daemons may have: it is asked for before the journal is read, which may know of a later start."""


async def ask_presence(bus: Bus) -> Presence:
    """Ask the broker for its table of daemons. Raises ``BrokerUnavailable`` or ``KeyRefused``."""
    return {f"{present.daemon}@{present.node}": present for present in await bus.present()}


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """A daemon's process that ended by a failure, from a log."""

    daemon: str
    time: datetime
    reason: str


Trouble = NodeDegraded | NodeRecovered | NodeQuarantined | NodeReleased

FORMAT = 14
"""Version of saved boards. Raise it when the rows change, or when a fold counts events differently."""


class DaemonRow(Row, frozen=True):
    """One daemon on one node.

    ``restarts`` counts starts without an orderly stop before them. ``version`` is its program's, ``None`` before its
    first recorded start.
    """

    daemon: str
    node: str
    heard_us: int
    state: State = "started"
    restarts: int = 0
    capacity: int = 0
    pid: int | None = None
    version: str | None = None
    error: str | None = None
    degraded: bool = False
    quarantined: bool = False

    def state_in(
        self, presence: Presence | None, now_us: int, *, running: bool, broker_is_silent: bool = False
    ) -> State:
        """Return the daemon's state.

        ``silent``: the broker lost the daemon or has not heard of it, or does not answer itself. ``gone``: the run
        ended without the daemon's stop.
        """
        if self.state not in ("started", "ready"):
            return self.state
        if not running:
            return "gone"
        if broker_is_silent and self.daemon == BROKER:
            return "silent"
        if presence is not None and self.daemon != BROKER:
            present = presence.get(f"{self.daemon}@{self.node}")
            is_new = now_us - self.heard_us < TABLE_AGE_US
            if present.lost if present else not is_new:
                return "silent"
        if self.state == "ready" and (self.quarantined or self.degraded):
            return "quarantined" if self.quarantined else "degraded"
        return self.state


def fold_daemon(row: DaemonRow | None, event: Event[Payload]) -> DaemonRow:
    """Return the row after one more event by its daemon. The event's payload is a ``DaemonFact``."""
    data = event.data
    assert isinstance(data, DaemonFact)
    if row is None:
        row = DaemonRow(daemon=data.daemon, node=data.node, heard_us=event.recorded_us, state="stopped")
    changes: dict[str, Any] = {}
    match data:
        case DaemonStarted():
            restarts = row.restarts + (row.state != "stopped")
            changes = {"state": "started", "restarts": restarts, "error": None}
            changes |= {"pid": data.pid, "version": data.version}
        case DaemonReady():
            changes = {"state": "ready", "capacity": data.capacity}
        case DaemonHeartbeat():  # recorded by older versions
            changes = {"state": "started" if row.state == "started" else "ready"}
        case DaemonStopped():
            changes = {"state": "stopped"}
        case DaemonFailed():
            changes = {"state": "failed", "error": data.error}
    return row.replace(heard_us=event.recorded_us, **changes)


def fold_trouble(row: DaemonRow, data: Trouble) -> DaemonRow:
    """Return a worker's row after a pause or quarantine begins or ends."""
    match data:
        case NodeDegraded(error=error):
            return row.replace(degraded=True, error=error)
        case NodeQuarantined(reason=reason):
            return row.replace(quarantined=True, error=reason)
        case NodeRecovered():
            after = row.replace(degraded=False)
        case NodeReleased():
            after = row.replace(quarantined=False)
    return after if after.degraded or after.quarantined else after.replace(error=None)


def fold_daemons(rows: Mapping[str, DaemonRow], event: Event[Any]) -> dict[str, DaemonRow]:
    """Return the rows that an event of ``DAEMONS_READ`` changes, by ``daemon@node``.

    Only one broker writes, so where another head's broker starts, the earlier one has ended.
    """
    data = event.data
    if isinstance(data, DaemonFact):
        changed = dict[str, DaemonRow]()
        if data.daemon == BROKER and isinstance(data, DaemonStarted):
            living = {name: row for name, row in rows.items() if row.state in ("started", "ready")}
            changed = {name: row.replace(state="stopped") for name, row in living.items() if row.daemon == BROKER}
        name = f"{data.daemon}@{data.node}"
        return changed | {name: fold_daemon(rows.get(name), event)}
    row = rows.get(data.worker)
    return {data.worker: fold_trouble(row, data)} if row else {}


DAEMONS_READ: frozenset[type[Payload]] = frozenset(
    payload for payload in BY_TYPE.values() if issubclass(payload, DaemonFact | Trouble)
)
"""Payload types that the rows of daemons are folded from."""

READS: frozenset[type[Payload]] = frozenset(
    {RunConfigured}
    | DAEMONS_READ
    | CONFIGS_READ
    | TRAININGS_READ
    | {payload for payload in BY_TYPE.values() if payload.kind is Kind.DECISION}
)
"""Payload types that a status is folded from."""


class LastDecision(Row, frozen=True):
    """The last decision about a configuration, opponents in self-play left out."""

    name: str
    id: str
    age_seconds: float


class ConfigStatus(Row, frozen=True):
    """Status of one configuration; ``None`` marks unknown or missing values.

    ``elo`` and ``elo_stderr`` are the current model's rating, see ``Lineage.rating``.
    ``blocked`` is the reason of a training block. ``paused`` is whether training pauses because its data is too poor.
    ``boost`` is the factor of an exploration boost. ``plateaued`` is whether its gain is done, so that it plays at the
    lowest weight. ``next_training`` is what the next training waits for, if it is known. ``waiting_for`` names an
    obstacle and a remedy.
    ``win_rate_random`` is the score against the random bot; ``outcome_random`` is the mean outcome against it in the
    game's own units, where outcomes are graded. ``late`` are live nodes that lack the model that is played.
    ``diverged`` counts the latest trainings in a row that diverged.
    """

    key: str
    games: int
    rows: int
    games_per_second: float | None
    step: int | None
    elo: float | None
    elo_stderr: float | None
    win_rate_random: Rate | None
    outcome_random: MeanOutcome | None
    progress: Progress | None
    promotions: int
    rejections: int
    rollbacks: int
    loops: int
    model: ModelHash | None
    blocked: str | None
    paused: bool
    boost: float | None
    plateaued: bool
    diverged: int
    last_decision: LastDecision | None
    next_training: str | None
    waiting_for: str | None
    late: tuple[str, ...]


class DaemonStatus(Row, frozen=True):
    """One daemon on one node. ``lag`` and ``jobs`` are of its latest sign of life; ``None``: it has sent no sign."""

    daemon: str
    node: str
    state: State
    heard_seconds_ago: float
    restarts: int
    lag: int | None
    jobs: int | None
    capacity: int
    pid: int | None
    version: str | None
    error: str | None


class Status(Tabular, Row, frozen=True):
    """Status of a run at one time.

    ``position`` is the position of the last event counted. ``advises``: the run asks for nothing.
    """

    brief_columns: ClassVar = {
        "configs": (
            *("key", "games", "games_per_second", "step", "elo", "elo_stderr", "win_rate_random_mean", "loops"),
            *("promotions", "rejections", "rollbacks", "waiting_for", "last_decision_name"),
        ),
        "daemons": ("daemon", "node", "state", "heard_seconds_ago", "restarts", "lag", "jobs", "capacity", "error"),
    }

    time: datetime
    running: bool
    advises: bool
    position: int
    configs: tuple[ConfigStatus, ...]
    daemons: tuple[DaemonStatus, ...]

    def headline(self) -> str:
        """See ``Tabular``."""
        rated = [config for config in self.configs if config.elo is not None]
        ratings = [f"{config.key} {show_elo(config.elo, config.elo_stderr)} Elo" for config in rated]
        what = ("running" if self.running else "not running") + (", advises only" if self.advises else "")
        return f"status of a run at event {self.position:,}, {what}: {named(ratings) or 'nothing rated yet'}"

    def tables(self) -> dict[str, Sequence[Record]]:
        """See ``Tabular``."""
        return {
            "configs": [flat(config.to_builtins()) for config in self.configs],
            "daemons": [flat(daemon.to_builtins()) for daemon in self.daemons],
        }


class Board(Row, frozen=False):  # type: ignore[misc]
    """Rows of a run, folded from its events in order.

    ``position`` and ``event_id`` belong to the event counted last. The keys of ``daemons`` are ``daemon@node``.
    """

    position: int = 0
    event_id: str = ""
    settings: RunSettings | None = None
    configs: dict[str, ConfigRow] = field(default_factory=dict)
    daemons: dict[str, DaemonRow] = field(default_factory=dict)
    trainings: Trainings = field(default_factory=Trainings)

    def save(self, path: Path) -> None:
        """Replace the saved board atomically.

        Raises:
            OSError: the file can't be written.
        """
        state = self.to_json().decode()
        document = {"made_by": _maker(), "sha256": sha256(state.encode()).hexdigest(), "state": state}
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f"{path.name}.{os.getpid()}")
        scratch.write_text(json.dumps(document), encoding="utf-8")
        scratch.replace(path)

    def feed(self, events: Iterable[Event[Any]]) -> None:
        """Fold events in order; those not in ``READS`` change no row."""
        for event in events:
            self.position, self.event_id = event.sequence, event.id
            if isinstance(event.data, RunConfigured):
                self._configure(event)
            elif isinstance(event.data, DaemonFact | Trouble):
                self.daemons |= fold_daemons(self.daemons, event)
            elif event.subject or isinstance(event.data, CurriculumRebalanced):
                self.configs |= fold_configs(self.configs, event)
            if self.settings and type(event.data) in TRAININGS_READ:
                self.trainings.feed(event, self.settings)

    def _configure(self, event: Event[RunConfigured]) -> None:
        """Fold the run's settings; foreign ones are skipped, as in every fold."""
        with suppress(ForeignSettings):
            self.settings = RunSettings.recorded(event.data.settings, event.source)
            for config in self.settings.configs:
                self.configs.setdefault(config.key, ConfigRow(key=config.key, since_us=event.recorded_us))

    def status(
        self, now: datetime, presence: Presence | None, *, running: bool, broker_is_silent: bool = False
    ) -> Status:
        """Return the status of the run's current configurations and of its daemons.

        Args:
            now: the time of day.
            presence: what the broker knows of living daemons; ``None`` if it cannot be asked.
            running: whether the run is running, because the journal alone can't show a crash.
            broker_is_silent: whether the broker listens and does not answer.
        """
        now_us = microseconds(now)
        played = self.configs if self.settings is None else [config.key for config in self.settings.configs]
        daemons = tuple(
            _daemon(
                row,
                row.state_in(presence, now_us, running=running, broker_is_silent=broker_is_silent),
                now_us,
                presence,
            )
            for row in self._present()
        )
        distributing = [daemon for daemon in daemons if daemon.daemon == "distribution"]
        live = {daemon.node for daemon in distributing if daemon.state in ("started", "ready")}
        advises = self.settings is not None and self.settings.advises
        ready = {daemon.daemon for daemon in daemons if daemon.state == "ready"}
        return Status(
            time=now,
            running=running,
            advises=advises,
            position=self.position,
            configs=tuple(
                _config(self.configs[key], now_us, self.settings, live).replace(
                    next_training=self._next_training(key, ready, now_us) if running and not advises else None
                )
                for key in played
            ),
            daemons=daemons,
        )

    def _next_training(self, key: str, ready: Collection[str], now_us: int) -> str | None:
        return self.trainings.waits_for(key, self.settings, ready, now_us) if self.settings else None

    def end(self, ended: ProcessEnd) -> None:
        """Mark a daemon as failed, unless it was heard of since. The broker cannot record its own failure."""
        for name, row in self.daemons.items():
            if row.daemon == ended.daemon and row.heard_us < microseconds(ended.time):
                self.daemons[name] = row.replace(state="failed", error=ended.reason)

    def _present(self) -> list[DaemonRow]:
        """Return the daemons of nodes that have not stopped.

        If all nodes have stopped, these are the daemons of the node heard last. Other nodes are left out, because a
        node that was shut down would stay in the table for ever.
        """
        rows = list(self.daemons.values())
        nodes = {row.node for row in rows if row.state != "stopped"}
        if rows and not nodes:
            nodes = {max(rows, key=lambda row: row.heard_us).node}
        return [row for row in rows if row.node in nodes]


def load_board(path: Path, reader: JournalReader) -> Board:
    """Return the saved board, or an empty one. A saved board counts only if it belongs to the journal."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        text = document["state"]
        if document["made_by"] != _maker() or document["sha256"] != sha256(text.encode()).hexdigest():
            return Board()
        board = Board.from_json(text)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError, DecodeError):
        return Board()
    return board if _belongs(board, reader) else Board()


def _belongs(board: Board, reader: JournalReader) -> bool:
    """Return whether a journal holds a board's last counted event, and voided no event after it."""
    if not reader.landmark(EventVoided.event_type) <= board.position <= reader.head or not board.position:
        return False
    event: Event[Any] | None = next(history(reader, after=board.position - 1, on_dead=lambda _: None), None)
    return event is not None and (event.sequence, event.id) == (board.position, board.event_id)


def _maker() -> str:
    """Return an id of the code that saved a board: its version, the board's format, and the events read."""
    names = sorted(f"{payload.event_type} {payload.dataversion}" for payload in READS)
    return f"flyball {version('flyball')} {FORMAT} {sha256(' '.join(names).encode()).hexdigest()[:16]}"


def _config(row: ConfigRow, now_us: int, settings: RunSettings | None, live: Collection[str]) -> ConfigStatus:
    decision = None
    if row.decision is not None:
        decision = LastDecision(row.decision.name, row.decision.id, _age(row.decision.recorded_us, now_us))
    elo, stderr = row.lineage.rating(row.elo, row.elo_stderr)
    late = tuple(node for node in row.late if node in live)
    return ConfigStatus(
        **_shared(row, ConfigStatus) | {"elo": elo, "elo_stderr": stderr, "late": late},
        model=row.model,
        games_per_second=row.games_per_second(now_us),
        boost=row.boost(now_us),
        last_decision=decision,
        next_training=None,
        waiting_for=waiting_for(row, settings) if settings else None,
    )


def _daemon(row: DaemonRow, state: State, now_us: int, presence: Presence | None) -> DaemonStatus:
    shown = _shared(row, DaemonStatus) | {"state": state}
    heard_seconds_ago, sign = _age(row.heard_us, now_us), None
    if presence is not None and row.daemon == BROKER and state != "stopped":
        heard_seconds_ago = 0.0  # because it has just answered
    elif presence is not None and (present := presence.get(f"{row.daemon}@{row.node}")):
        heard_seconds_ago, sign = present.heard_seconds_ago, present.sign
    lag, jobs = (sign.lag, sign.jobs) if sign else (None, None)
    return DaemonStatus(**shown, heard_seconds_ago=heard_seconds_ago, lag=lag, jobs=jobs)


def _shared(row: Row, shown: type[Row]) -> dict[str, Any]:
    """Return a row's fields whose names the shown type has too."""
    return {name: getattr(row, name) for name in row.__struct_fields__ if name in shown.__struct_fields__}


def microseconds(time: datetime) -> int:
    """Return a time as microseconds since 1970."""
    return round((time - EPOCH).total_seconds() * SECOND_US)


def _age(then_us: int, now_us: int) -> float:
    return max(0, now_us - then_us) / SECOND_US
