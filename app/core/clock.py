"""Clocks and recorded time.

The code here is pure: only ``flyball.daemons.clock`` reads the system's clocks.

Recorded time follows the time of day, never goes back and never stands still. The time of day may jump: when it is set
by hand, by NTP after a boot, or when a machine wakes up. A small jump forward is followed at once. A large one is
followed only after it has lasted a while, because records with a wrong time could not be corrected. While the time of
day lies behind, recorded time runs a little more slowly than the monotonic clock until the time of day has caught up.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol


class Clock(Protocol):
    """Tells the time of day and measures durations."""

    def now(self) -> datetime:
        """Return the time of day, timezone-aware, in UTC."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back."""


SECOND_US = 1_000_000
SECONDS_PER_HOUR = 3600.0
SMALL_JUMP_US = 10 * SECOND_US
"""Longest jump forward that is followed at once, in microseconds."""

HOLD_US = 60 * SECOND_US
"""Time that a larger jump must last before it is followed, in microseconds of the monotonic clock."""

SLOWED = 0.9
"""Seconds of recorded time in a second of the monotonic clock, while the time of day lies behind."""

Relation = Literal["even", "ahead", "behind"]


@dataclass(frozen=True, slots=True)
class SteadyTime:
    """Recorded time at one reading of the clocks; all in microseconds."""

    now_us: int  # recorded time, since 1970 UTC
    monotonic_us: int  # the monotonic clock at this reading
    ahead_since_us: int | None = None  # the monotonic clock when the time of day jumped ahead; None: it is not ahead
    offset_us: int = 0  # time of day less recorded time

    @property
    def relation(self) -> Relation:
        """Position of the time of day relative to recorded time.

        ``ahead``: by a jump that is not followed yet. ``behind``: by more than ``SMALL_JUMP_US``.
        """
        if self.ahead_since_us is not None:
            return "ahead"
        return "behind" if self.offset_us < -SMALL_JUMP_US else "even"

    @classmethod
    def begin(cls, recorded_us: int, day_us: int, monotonic_us: int) -> "SteadyTime":
        """Start in a new process, trusting the time of day, because the length of the pause is unknown."""
        now_us = max(recorded_us, day_us)
        return cls(now_us, monotonic_us, offset_us=day_us - now_us)

    def advance(self, day_us: int, monotonic_us: int) -> "SteadyTime":
        """Return recorded time at the next reading of the clocks.

        The time of day may have jumped since the last reading.
        """
        elapsed = monotonic_us - self.monotonic_us
        even, slowed = self.now_us + elapsed, self.now_us + int(SLOWED * elapsed)
        if day_us > even + SMALL_JUMP_US:
            since = monotonic_us if self.ahead_since_us is None else self.ahead_since_us
            if monotonic_us - since < HOLD_US:
                return SteadyTime(even, monotonic_us, since, day_us - even)
        now_us = max(day_us, slowed)
        return SteadyTime(now_us, monotonic_us, offset_us=day_us - now_us)
