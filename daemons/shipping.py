"""Shipping a run's journal to another place, in a process that the broker starts (ADR-042)."""

import os
import select
import signal
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
from flyball.app.events.frames import DamagedRecord
from flyball.app.journal.database import StorageError, locked
from flyball.app.journal.ports import JournalReader
from flyball.app.journal.segments import FOLDER as ARCHIVE
from flyball.app.journal.shipping import OtherHistoryShipped, Shipper
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
    """The progress of shipping, for ``shipping_of``. It does not decide what is shipped.

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
        """Sentences on what is not there, and why."""
        behind = f"{self.seconds:,.0f} s behind, {self.events:,} events." if self.events else ""
        return f"{behind} {self.error}".strip()


def shipping_of(folder: RunFolder, loaded: Loaded, reader: JournalReader, now: datetime) -> Shipping | None:
    """Return the rest of a run's journal, which is not shipped; None if it is to be shipped nowhere."""
    where = loaded.ship
    if where is None:
        return None
    state = _read(folder.shipping, where)
    position, seconds = max(state.position, reader.first - 1), 0.0
    if events := max(0, reader.head - position):
        try:
            recorded_us = reader.read(position, limit=1).records[0].recorded_us
        except (StorageError, DamagedRecord):  # its segment is missing, or it is damaged; the latest event is readable
            recorded_us = next(reader.headers_back(reader.head)).recorded_us
        seconds = max(0.0, ((now - EPOCH) // MICROSECOND - recorded_us) / SECOND_US)
    beside = False
    with suppress(OSError):
        beside = "://" not in where and Path(where).stat().st_dev == folder.path.stat().st_dev
    limit = LATE_SECONDS + 2 * loaded.deployment.journal.ship_seconds
    return Shipping(where, events, seconds, limit, state.error, state.hint, beside)


def _read(path: Path, where: str) -> ShippingState:
    """Return the latest progress of shipping to a place; position 0 without any."""
    with suppress(OSError, msgspec.MsgspecError):
        state = msgspec.json.decode(path.read_bytes(), type=ShippingState)
        if state.where == where:
            return state
    return ShippingState(where)


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
    """Ship what is new, and write the progress. Returns the error if it failed.

    Until a new shipper has seen the place, the earlier position counts. Of another history nothing does.
    """
    error: FlyballError | None = None
    try:
        shipper.ship()
    except FlyballError as caught:
        error = caught
    position = shipper.shipped.position or _read(folder.shipping, where).position
    if isinstance(error, OtherHistoryShipped):
        position = 0
    why = (error.message, error.hint) if error else (shipper.problem, "")
    _write(folder.shipping, ShippingState(where, position, *why))
    return error


def _write(path: Path, state: ShippingState) -> None:
    with suppress(OSError):  # a full disk must not end shipping
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_name(f"{path.name}.partial")
        unfinished.write_bytes(msgspec.json.encode(state))
        unfinished.replace(path)


class Stop:
    """Request for the last shipment. A pipe, because ``Event.set`` may block for ever in the handler of a signal."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def set(self) -> None:
        """Request the last shipment, from any thread or a signal's handler.

        After ``LAST_SECONDS`` an alarm kills the process, because the broker waits for its end.
        """
        signal.alarm(LAST_SECONDS)
        with suppress(BlockingIOError):  # full of requests
            os.write(self._writer, b".")

    def wait(self, seconds: float) -> bool:
        """Wait for a request, at most ``seconds``. Returns whether there is one."""
        return bool(select.select([self._reader], [], [], max(0.0, seconds))[0])


def ship_always(folder: RunFolder, loaded: Loaded, stop: Stop) -> None:
    """Ship until ``stop`` is set, and then once more."""
    log, clock, interval = structlog.get_logger(SHIPPER), SystemClock(), loaded.deployment.journal.ship_seconds
    failures, reported, is_last = 0, "", False
    where = str(loaded.ship)
    with shipper_of(folder, loaded) as shipper:
        log.info("shipping", where=where)
        while True:
            began = clock.monotonic()
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
            is_last = stop.wait(began + pause - clock.monotonic())
