"""The one place that reads the machine's clocks and its randomness."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from secrets import token_hex

from app.core import Clock
from app.core.clock import SECOND_US, SLOWED, Relation, SteadyTime
from app.events.envelope import EPOCH

MICROSECOND = timedelta(microseconds=1)


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time of day in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is the clock

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back."""
        return time.monotonic()


class RecordingClock:
    """The broker's clock for records: never goes back, never stands still.

    Args:
        clock: the machine's.
        recorded_us: time of the last record, microseconds since 1970 UTC.
        alarm: called with a warning when the time of day has jumped, and when it agrees again.
    """

    def __init__(self, clock: Clock, recorded_us: int, alarm: Callable[[str], None]) -> None:
        self._clock, self._alarm = clock, alarm
        self._time = SteadyTime.begin(recorded_us, self._day_us(), self._monotonic_us())
        self._relation: Relation = "even"
        self._tell()

    def now(self) -> datetime:
        """Return recorded time."""
        self._time = self._time.advance(self._day_us(), self._monotonic_us())
        self._tell()
        return EPOCH + self._time.now_us * MICROSECOND

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back."""
        return self._clock.monotonic()

    def _tell(self) -> None:
        if self._time.relation != self._relation:
            self._relation = self._time.relation
            self._alarm(_alarm(self._time))

    def _day_us(self) -> int:
        return (self._clock.now() - EPOCH) // MICROSECOND

    def _monotonic_us(self) -> int:
        return int(self._clock.monotonic() * SECOND_US)


def _alarm(time: SteadyTime) -> str:
    seconds = f"{abs(time.offset_us) / SECOND_US:,.0f} s"
    match time.relation:
        case "ahead":
            return f"The machine's clock jumped {seconds} ahead; recorded time follows if it stays there."
        case "behind":
            return f"The machine's clock is {seconds} behind recorded time, which goes on at {SLOWED:.0%} of its speed."
        case "even":
            return "Recorded time and the machine's clock agree again."


def boot_id() -> str:
    """Return a name for this start of this process, the one id that follows from nothing.

    What a process says of itself is not what an earlier one said.
    """
    return token_hex(16)
