"""The one place that reads the machine's clocks and its randomness."""

import time
from datetime import UTC, datetime
from uuid import uuid4


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time of day in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is the clock

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back."""
        return time.monotonic()


def boot_id() -> str:
    """Return a name for this start of this process: what it says of itself is not what an earlier one said."""
    return uuid4().hex
