"""A connection as the broker knows it. Pure."""

from dataclasses import dataclass

BURST_SECONDS = 2.0


class Bucket:
    """Bounds a rate: holds tokens for two seconds' worth, refilled steadily.

    Args:
        rate: tokens per second.
        now: seconds, from any start.
    """

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._tokens = BURST_SECONDS * rate
        self._then = now

    def take(self, count: int, now: float) -> float:
        """Take tokens if there are any and return 0, else the seconds to wait. One call may overdraw."""
        self._tokens = min(self._tokens + (now - self._then) * self._rate, BURST_SECONDS * self._rate)
        self._then = now
        if self._tokens <= 0:
            return -self._tokens / self._rate + 0.001
        self._tokens -= count
        return 0.0


@dataclass(slots=True)
class Session:
    """What the broker knows of one connection.

    Attributes:
        producer: its name.
        bucket: bounds its rate of events.
        heard: when it last said something, seconds of the monotonic clock.
        epochs: those it may still send frames of.
        silenced: its frames are ignored until it says hello again, because some were lost or it is too fast.
    """

    producer: str
    bucket: Bucket
    heard: float
    epochs: tuple[int, ...]
    silenced: bool = False
