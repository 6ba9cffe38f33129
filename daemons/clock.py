"""The only module that reads the machine's clocks and randomness."""

import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from secrets import token_hex

from flyball.app.core import Clock
from flyball.app.core.clock import SECOND_US, SLOWED, Relation, SteadyTime
from flyball.app.events.envelope import EPOCH

MICROSECOND = timedelta(microseconds=1)


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """See ``Clock.now``."""
        return datetime.now(UTC)  # noqa: TID251 - this is the clock

    def monotonic(self) -> float:
        """See ``Clock.monotonic``."""
        return time.monotonic()


class RecordingClock:
    """The broker's clock for records.

    Recorded time never goes back and never stands still.

    Args:
        clock: the machine's clock.
        recorded_us: time of the last record, microseconds since 1970 UTC.
        alarm: called with a message when the time of day has jumped, and when it agrees with recorded time again.
    """

    def __init__(self, clock: Clock, recorded_us: int, alarm: Callable[[str], None]) -> None:
        self._clock, self._alarm = clock, alarm
        self._time = SteadyTime.begin(recorded_us, *self._readings())
        self._relation: Relation = "even"
        self._tell()

    def now(self) -> datetime:
        """Return recorded time."""
        self._time = self._time.advance(*self._readings())
        self._tell()
        return EPOCH + self._time.now_us * MICROSECOND

    def monotonic(self) -> float:
        """See ``Clock.monotonic``."""
        return self._clock.monotonic()

    def _tell(self) -> None:
        time = self._time
        if time.relation == self._relation:
            return
        self._relation = time.relation
        by = f"{abs(time.offset_us) / SECOND_US:,.0f} s"
        texts: dict[Relation, str] = {
            "ahead": f"The machine's clock jumped {by} ahead; recorded time follows if it stays there.",
            "behind": f"The machine's clock is {by} behind recorded time, which goes on at {SLOWED:.0%} of its speed.",
            "even": "Recorded time and the machine's clock agree again.",
        }
        self._alarm(texts[time.relation])

    def _readings(self) -> tuple[int, int]:
        """Return the time of day and the monotonic clock, in microseconds."""
        return (self._clock.now() - EPOCH) // MICROSECOND, int(self._clock.monotonic() * SECOND_US)


def boot_id() -> str:
    """Return a random id for this start of the process, whose events need other ids than those of earlier starts."""
    return token_hex(16)


def processor_seconds() -> float:
    """Return the processor time used by this process and its ended children, in seconds."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
