"""Upkeep of journal and store beside a running broker.

The journal is archived, and snapshots are taken (ADR-045). A store near its bound loses what nothing needs (ADR-054).
"""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from math import inf
from pathlib import Path

import structlog

from app.config.deployment import JournalSettings
from app.core import Clock, FlyballError
from app.events.envelope import EPOCH
from app.journal import SqliteJournal
from app.journal.snapshots import positions

LOOK_SECONDS = 60.0
EVENTS = 25_000
"""New events between two archivings; a cluster of 36 nodes has as many a day."""

PAUSE_SECONDS = 600.0
"""Least time between two starts of the process that archives."""


class _Program:
    """A command that is started now and then.

    It has a low priority, and ``errors`` receives its stderr. It has to end when its stdin closes.
    """

    def __init__(self, what: str, command: Sequence[str], errors: Path) -> None:
        self._what, self._command, self._errors = what, ("nice", "-n", "10", *command), errors
        self._log = structlog.get_logger("broker")
        self.child: subprocess.Popen[bytes] | None = None

    def is_idle(self) -> bool:
        """Return whether the command may be started; report its failure."""
        if self.child is not None and (code := self.child.poll()) is not None:
            self.child.communicate()  # closes its stdin
            self.child = None
            if code:
                error = ""
                with suppress(OSError):  # removed since, for instance by a cleaner
                    error = self._errors.read_text(errors="replace")[-1000:]
                self._log.error(f"{self._what} failed", code=code, error=error)
        return self.child is None

    def start(self) -> None:
        """Start the command. Raises ``OSError``."""
        self._errors.parent.mkdir(parents=True, exist_ok=True)
        with self._errors.open("wb") as errors:
            # Its stdin closes when this process ends, even killed; then it ends too, and the journal is free.
            self.child = subprocess.Popen(  # noqa: S603 - our own command
                self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
            )

    def close(self) -> None:
        """End the command, whose work is repeated later."""
        if self.child is not None:
            self.child.terminate()
            self.child.communicate()


class StoreUpkeep:
    """Starts the command that makes room in the store, every ten minutes.

    Args:
        command: deletes blobs that nothing needs if the store is near its bound; ends when its stdin closes. Empty:
            nothing is deleted.
        errors: receives the command's stderr.
        clock: tells the time.
    """

    def __init__(self, command: Sequence[str], errors: Path, clock: Clock) -> None:
        self._program, self._clock = _Program("making room in the store", command, errors), clock
        self._due = clock.monotonic() + PAUSE_SECONDS if command else inf

    def look(self) -> None:
        """Start the command if it is due."""
        now = self._clock.monotonic()
        if now < self._due:
            return
        self._due = now + PAUSE_SECONDS
        try:
            if self._program.is_idle():
                self._program.start()
        except OSError as error:
            structlog.get_logger("broker").error("making room in the store not started", error=str(error))

    def close(self) -> None:
        """End the command."""
        self._program.close()


class Upkeep:
    """Looks after a journal, once a minute.

    A process of low priority does the work that takes longer.

    Args:
        journal: the broker's.
        command: archives old records and takes a snapshot; ends when its stdin closes.
        errors: receives the command's stderr.
        settings: what stays live, and what is deleted.
        clock: tells the time.
    """

    def __init__(
        self, journal: SqliteJournal, command: Sequence[str], errors: Path, settings: JournalSettings, clock: Clock
    ) -> None:
        self._journal, self._program = journal, _Program("archiving", command, errors)
        self._settings, self._clock, self._log = settings, clock, structlog.get_logger("broker")
        self._due = self._next_start = clock.monotonic()
        self._done = max((one for one in positions(journal.archive.folder) if one <= journal.head), default=0)

    def look(self) -> None:
        """Do the work that is due."""
        now = self._clock.monotonic()
        if now < self._due:
            return
        self._due = now + LOOK_SECONDS
        try:
            before = self._journal.archive.end
            if self._journal.adopt(most=1) > before:
                self._due = now  # the next turn takes the next one, because each is read as a whole
                return
            if self._settings.delete_days is not None:
                self._delete(self._settings.delete_days)
        except (FlyballError, OSError) as error:
            self._log.error("archive not updated", error=str(error))
        try:
            self._run(now)
        except OSError as error:
            self._log.error("archiving not started", error=str(error))

    def _run(self, now: float) -> None:
        """Start the command if it is due.

        An earlier command that failed is reported. Raises ``OSError``.
        """
        if self._program.is_idle() and self._journal.head - self._done >= EVENTS and now >= self._next_start:
            self._next_start, self._done = now + PAUSE_SECONDS, self._journal.head
            self._program.start()

    def _delete(self, days: float) -> None:
        before = (self._clock.now() - timedelta(days=days) - EPOCH) // timedelta(microseconds=1)
        for row in self._journal.forget(before):
            self._log.warning("events deleted for good", first=row.first, last=row.last)

    def close(self) -> None:
        """End the process that archives.

        Work that it has not completed is repeated later.
        """
        self._program.close()
