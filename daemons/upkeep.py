"""Upkeep of the journal beside a running broker: archiving, snapshots, deletion (ADR-045)."""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
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
        self._journal, self._command, self._errors = journal, ("nice", "-n", "10", *command), errors
        self._settings, self._clock, self._log = settings, clock, structlog.get_logger("broker")
        self._due = self._next_start = clock.monotonic()
        self._done = max((one for one in positions(journal.archive.folder) if one <= journal.head), default=0)
        self._child: subprocess.Popen[bytes] | None = None

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
        if self._child is not None and (code := self._child.poll()) is not None:
            self._child.communicate()  # closes its stdin
            self._child = None
            if code:
                why = ""
                with suppress(OSError):  # removed since, for instance by a cleaner
                    why = self._errors.read_text(errors="replace")[-1000:]
                self._log.error("archiving failed", code=code, error=why)
        if self._child is None and self._journal.head - self._done >= EVENTS and now >= self._next_start:
            self._next_start, self._done = now + PAUSE_SECONDS, self._journal.head
            self._errors.parent.mkdir(exist_ok=True)
            with self._errors.open("wb") as errors:
                # Its stdin closes when this process ends, even killed; then it ends too, and the journal is free.
                self._child = subprocess.Popen(  # noqa: S603 - our own command
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
                )

    def _delete(self, days: float) -> None:
        before = (self._clock.now() - timedelta(days=days) - EPOCH) // timedelta(microseconds=1)
        for row in self._journal.forget(before):
            self._log.warning("events deleted for good", first=row.first, last=row.last)

    def close(self) -> None:
        """End the process that archives.

        Work that it has not completed is repeated later.
        """
        if self._child is not None:
            self._child.terminate()
            self._child.communicate()
