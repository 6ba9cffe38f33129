"""Connections and producers as the broker knows them. Pure."""

from collections import Counter
from collections.abc import Iterable
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
        self._refill(now)
        if self._tokens <= 0:
            return -self._tokens / self._rate + 0.001
        self._tokens -= count
        return 0.0

    def is_full(self, now: float) -> bool:
        """Return whether it is as good as a new one."""
        self._refill(now)
        return self._tokens >= BURST_SECONDS * self._rate

    def _refill(self, now: float) -> None:
        self._tokens = min(self._tokens + (now - self._then) * self._rate, BURST_SECONDS * self._rate)
        self._then = now


class Buckets:
    """A bucket for each producer: a new connection or greeting brings no fresh one.

    Args:
        rate: events per second of one producer.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._buckets: dict[str, Bucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, producer: str, count: int, now: float) -> float:
        """Take tokens of a producer's, see ``Bucket.take``."""
        bucket = self._buckets.get(producer)
        if bucket is None:
            bucket = self._buckets[producer] = Bucket(self._rate, now)
        return bucket.take(count, now)

    def tidy(self, now: float) -> None:
        """Forget those that are full."""
        self._buckets = {producer: bucket for producer, bucket in self._buckets.items() if not bucket.is_full(now)}


class Lives:
    """Counts the connections on which each epoch of a producer may be heard."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()

    def begin(self, producer: str, epochs: Iterable[int]) -> None:
        """Count a connection."""
        self._counts.update((producer, epoch) for epoch in epochs)

    def end(self, producer: str, epochs: Iterable[int]) -> list[int]:
        """Take a connection off, and return the epochs that are left without any."""
        ended = []
        for epoch in epochs:
            self._counts[producer, epoch] -= 1
            if not self._counts[producer, epoch]:
                del self._counts[producer, epoch]
                ended.append(epoch)
        return ended


@dataclass(slots=True)
class Session:
    """The broker's state of one connection.

    Attributes:
        producer: its name.
        heard: when it last said something, seconds of the monotonic clock.
        epochs: those it may still send frames of.
        silenced: its frames are ignored until it says hello again, because some were lost or it is too fast.
    """

    producer: str
    heard: float
    epochs: tuple[int, ...]
    silenced: bool = False
