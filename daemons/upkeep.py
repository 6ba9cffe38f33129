"""Upkeep of journal and store beside a running broker.

The journal is archived, and snapshots are taken (ADR-006). A store near its bound loses what nothing needs (ADR-012).
"""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from math import inf
from pathlib import Path

import structlog

from flyball.app.config.deployment import JournalSettings
from flyball.app.core import Clock, FlyballError
from flyball.app.events.envelope import EPOCH
from flyball.app.journal.ports import StoredJournal

LOOK_SECONDS = 60.0
EVENTS = 25_000
"""New events between two archivings; a cluster of 36 nodes has as many a day."""

PAUSE_SECONDS = 600.0
"""Usual least time between two starts of a command."""


class PeriodicCommand:
    """A command that is started now and then.

    It has a low priority, and has to end when its stdin closes.

    Args:
        what: its work, in messages.
        command: without any, nothing is ever started.
        errors: receives its stderr.
        clock: tells the time.
        wait_seconds: time before the first start.
        pause_seconds: least time between two starts.
    """

    def __init__(
        self,
        what: str,
        command: Sequence[str],
        errors: Path,
        clock: Clock,
        *,
        wait_seconds: float = 0.0,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._what, self._command, self._errors = what, ("nice", "-n", "10", *command), errors
        self._clock, self._log = clock, structlog.get_logger("broker")
        self._due, self._pause_seconds = clock.monotonic() + wait_seconds if command else inf, pause_seconds
        self.child: subprocess.Popen[bytes] | None = None

    def look(self, *, wanted: bool = True) -> bool:
        """Start the command if it is wanted and due; return whether it was started.

        An earlier one that failed is reported.
        """
        now = self._clock.monotonic()
        if not self._is_idle() or not wanted or now < self._due:
            return False
        self._due = now + self._pause_seconds
        try:
            self._start()
        except OSError as error:
            self._log.error(f"{self._what} not started", error=str(error))
            return False
        return True

    def _is_idle(self) -> bool:
        if self.child is not None and (code := self.child.poll()) is not None:
            self.child.communicate()  # closes its stdin
            self.child = None
            if code:
                error = ""
                with suppress(OSError):  # removed since, for instance by a cleaner
                    error = self._errors.read_text(errors="replace")[-1000:]
                self._log.error(f"{self._what} failed", code=code, error=error)
        return self.child is None

    def _start(self) -> None:
        self._errors.parent.mkdir(exist_ok=True)
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


class Upkeep:
    """Looks after a journal, once a minute.

    Args:
        journal: the broker's.
        archiving: does the work that takes longer: archives old records and takes a snapshot.
        settings: what stays live, and what is deleted.
        clock: tells the time.
    """

    def __init__(
        self, journal: StoredJournal, archiving: PeriodicCommand, settings: JournalSettings, clock: Clock
    ) -> None:
        self._journal, self._archiving = journal, archiving
        self._settings, self._clock, self._log = settings, clock, structlog.get_logger("broker")
        self._due = clock.monotonic()
        self._done = max((position for position in journal.snapshot_positions() if position <= journal.head), default=0)

    def look(self) -> None:
        """Do the work that is due."""
        now = self._clock.monotonic()
        if now < self._due:
            return
        self._due = now + LOOK_SECONDS
        try:
            before = self._journal.archived
            if self._journal.adopt(most=1) > before:
                self._due = now  # the next turn takes the next one, because each is read as a whole
                return
            if self._settings.delete_days is not None:
                self._delete(self._settings.delete_days)
        except (FlyballError, OSError) as error:
            self._log.error("archive not updated", error=str(error))
        if self._archiving.look(wanted=self._journal.head - self._done >= EVENTS):
            self._done = self._journal.head

    def _delete(self, days: float) -> None:
        before = (self._clock.now() - timedelta(days=days) - EPOCH) // timedelta(microseconds=1)
        for row in self._journal.forget(before):
            self._log.warning("events deleted for good", first=row.first, last=row.last)
