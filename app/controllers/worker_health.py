"""Health of workers: consecutive failures pause a worker, and a success ends its trial (ADR-010).

The scheduler judges self-play workers by it, leases the daemons of all other jobs. Each decides for itself whether the
worker or the job is at fault.
"""

from typing import Self

from flyball.app.config.feedback import NodeSettings
from flyball.app.core import SECOND_US, backoff
from flyball.app.events import NodeDegraded, Row


class WorkerHealth(Row, frozen=True):
    """Capacity and health of a worker that runs jobs.

    Attributes:
        capacity: number of jobs that it runs at once.
        failures: number of its consecutive failed jobs.
        failing_us: when the first of them failed.
        pauses: number of its consecutive pauses; after a pause it gets one job at a time until one succeeds.
        rests_until_us: time until which it gets no jobs; ``None``: it does not rest.
    """

    capacity: int
    failures: int = 0
    failing_us: int = 0
    pauses: int = 0
    rests_until_us: int | None = None

    def job_slots(self, per_capacity: int) -> int:
        """Return the most jobs that the worker may hold: at most 1 on trial after a pause, and 0 while it rests."""
        if self.rests_until_us is not None:
            return 0
        return min(1, self.capacity) if self.pauses else per_capacity * self.capacity

    def after_rest(self, now_us: int) -> Self:
        """End a rest whose time is over."""
        is_over = self.rests_until_us is not None and self.rests_until_us <= now_us
        return self.replace(rests_until_us=None) if is_over else self

    def after_success(self) -> Self:
        """Forget failures and pauses."""
        return self.replace(failures=0, pauses=0)

    def after_failure(self, now_us: int) -> Self:
        """Count a failed job. Those that end during a rest don't count, because they were given before it."""
        return self.replace(failures=self.failures + 1, failing_us=self.failing_us if self.failures else now_us)

    def paused(self, name: str, error: str, now_us: int, limits: NodeSettings) -> tuple[Self, NodeDegraded]:
        """Return the worker after the start of a pause, each longer than the one before, and the event that says so."""
        seconds = backoff(limits.pause_seconds, limits.longest_pause_seconds, self.pauses)
        resting = self.replace(pauses=self.pauses + 1, rests_until_us=now_us + round(seconds * SECOND_US))
        return resting, NodeDegraded(worker=name, failures=self.failures, pause_seconds=seconds, error=error)
