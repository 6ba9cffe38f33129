"""Shipping a run's journal to another place, in a process that the broker starts (ADR-042)."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
import structlog

from flyball.app.config import RunFolder
from flyball.app.config.loading import Loaded
from flyball.app.core import BadUsage, FlyballError, backoff
from flyball.app.core.clock import SECOND_US
from flyball.app.events.envelope import EPOCH
from flyball.app.journal.database import StorageError, locked
from flyball.app.journal.ports import JournalReader
from flyball.app.journal.segments import FOLDER as ARCHIVE
from flyball.app.journal.shipping import Shipper
from flyball.daemons.clock import MICROSECOND, SystemClock

SHIPPER = "shipping"
"""Name of the process, for its logs and its lock."""

SETTING = "deployment.journal.ship"
MOST_PAUSE_SECONDS = 30.0
"""Longest pause between attempts at a place that is away."""

LATE_SECONDS = 30.0
"""Time beyond two shipments after which an event that is not shipped is late."""

LAST_SECONDS = 5
"""Longest time for the last shipment, after the broker has ended."""


class ShippingState(msgspec.Struct, frozen=True):
    """How far the journal is shipped, for ``shipping_of``. A shipper does not read it.

    Attributes:
        where: the folder or URL.
        position: of the last event that is there.
        error: why the latest shipment failed, or is incomplete; ``hint``: what to do about it. Empty if it did not.
    """

    where: str
    position: int = 0
    error: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Shipping:
    """The rest of a journal, which is not shipped.

    Attributes:
        where: the folder or URL.
        events: number of events that are not there; ``seconds``: since the first of them was recorded.
        limit_seconds: longest time that is usual.
        error: why the latest shipment failed, or is incomplete; ``hint``: what to do about it.
        beside: the folder is on the file system of the journal, whose loss it is for.
    """

    where: str
    events: int
    seconds: float
    limit_seconds: float
    error: str
    hint: str
    beside: bool

    @property
    def is_late(self) -> bool:
        """True if events should be there that are not."""
        return self.events > 0 and self.seconds > self.limit_seconds

    @property
    def text(self) -> str:
        """How much is not there."""
        return f"{self.seconds:,.0f} s behind, {self.events:,} events"


def shipping_of(folder: RunFolder, loaded: Loaded, reader: JournalReader, now: datetime) -> Shipping | None:
    """Return the rest of a run's journal, which is not shipped; None if it is to be shipped nowhere."""
    where = loaded.ship
    if where is None:
        return None
    state = _read(folder.shipping)
    if state is None or state.where != where:  # not shipped yet
        state = ShippingState(where)
    position, seconds = max(state.position, reader.first - 1), 0.0
    if events := max(0, reader.head - position):
        try:
            recorded_us = reader.read(position, limit=1).records[0].recorded_us
        except StorageError:  # a segment is missing; then the latest event's time is known
            recorded_us = next(reader.headers_back(reader.head)).recorded_us
        seconds = max(0.0, ((now - EPOCH) // MICROSECOND - recorded_us) / SECOND_US)
    beside = False
    with suppress(OSError):
        beside = "://" not in where and Path(where).stat().st_dev == folder.path.stat().st_dev
    limit = LATE_SECONDS + 2 * loaded.deployment.journal.ship_seconds
    return Shipping(where, events, seconds, limit, state.error, state.hint, beside)


def _read(path: Path) -> ShippingState | None:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=ShippingState)
    return None


@contextmanager
def shipper_of(folder: RunFolder, loaded: Loaded) -> Iterator[Shipper]:
    """Open the shipper of a run's journal.

    Raises:
        BadUsage: the settings name no place.
        StorageInUse: another process ships the journal.
    """
    if loaded.ship is None:
        raise BadUsage(f"{SETTING} is not set.", hint="Name a folder on another disk, or a URL.")
    from flyball.app.store.named import open_objects  # stores import NumPy, which `flyball status` does without

    clock, lock = SystemClock(), folder.path / ARCHIVE / SHIPPER
    lock.parent.mkdir(exist_ok=True)
    with locked(lock):
        yield Shipper(
            folder.journal,
            open_objects(loaded.ship, SETTING),
            interval_seconds=loaded.deployment.journal.ship_seconds,
            now_us=lambda: (clock.now() - EPOCH) // MICROSECOND,
            monotonic=clock.monotonic,
        )


def ship_once(shipper: Shipper, folder: RunFolder, where: str) -> FlyballError | None:
    """Ship what is new, and write how far it is shipped. Returns the error if it failed."""
    error: FlyballError | None = None
    try:
        shipper.ship()
    except FlyballError as caught:
        error = caught
    state = ShippingState(where, shipper.shipped.position, shipper.problem)
    if error:
        state = ShippingState(where, shipper.shipped.position, error.message, error.hint)
    _write(folder.shipping, state)
    return error


def _write(path: Path, state: ShippingState) -> None:
    with suppress(OSError):  # a full disk must not end shipping
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_name(f"{path.name}.partial")
        unfinished.write_bytes(msgspec.json.encode(state))
        unfinished.replace(path)


def ship_always(folder: RunFolder, loaded: Loaded, stop: threading.Event) -> None:
    """Ship until ``stop`` is set, and then once more."""
    log, clock, interval = structlog.get_logger(SHIPPER), SystemClock(), loaded.deployment.journal.ship_seconds
    failures, reported = 0, ""
    where = str(loaded.ship)
    with shipper_of(folder, loaded) as shipper:
        log.info("shipping", where=where)
        while True:
            began, is_last = clock.monotonic(), stop.is_set()
            error = ship_once(shipper, folder, where)
            if str(error or "") != reported:
                reported = str(error or "")
                if error:
                    log.error("journal not shipped", error=reported)
                else:
                    log.info("journal shipped again", position=shipper.shipped.position)
            if is_last:
                return
            failures = failures + 1 if error else 0
            pause = backoff(interval, max(interval, MOST_PAUSE_SECONDS), failures - 1) if error else interval
            stop.wait(max(0.0, began + pause - clock.monotonic()))


def stop_for_good(stop: threading.Event) -> None:
    """Ask for the last shipment. If it takes too long, the process is killed, because the broker waits for its end."""
    stop.set()
    signal.alarm(LAST_SECONDS)
