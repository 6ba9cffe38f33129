"""The one place that reads the machine's clocks and its randomness."""

import time
from datetime import UTC, datetime
from secrets import token_hex


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time of day in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is the clock

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back."""
        return time.monotonic()


def boot_id() -> str:
    """Return a name for this start of this process, the one id that follows from nothing.

    What a process says of itself is not what an earlier one said.
    """
    return token_hex(16)
