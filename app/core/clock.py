"""Time as an argument. The system clock lives in ``app.runtime.clock``; nothing else reads one."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time of day and measures durations."""

    def now(self) -> datetime:
        """Return the time of day, timezone-aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back."""
        ...
