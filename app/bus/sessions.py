"""Cursors and dead letters at the broker: requests of clients other than events. No sockets."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from app.bus import wire
from app.bus.ports import Ledger
from app.events.frames import DeadLetter

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


Message = tuple[bytes, list[bytes]]


class Desk:
    """Collects what the next transaction writes, and the answers that follow it.

    Args:
        journal: where cursors and dead letters are kept.
    """

    def __init__(self, journal: Ledger) -> None:
        self._journal = journal
        self._known = journal.cursors()
        self._cursors: dict[str, int] = {}
        self._letters: list[DeadLetter] = []
        self._answers: list[Message] = []

    def start_of(self, wanted: wire.Subscribe, head: int) -> int:
        """Return the position after which a subscription begins."""
        if wanted.after is not None:
            return wanted.after
        return head if wanted.durable is None else self._known.get(wanted.durable, 0)

    def ask(self, peer: bytes, parts: list[bytes], head: int) -> None:
        """Do what a client asks for; it is answered after the next transaction.

        Args:
            peer: who asks.
            parts: the whole message.
            head: position of the last event.

        Raises:
            ProtocolError, ValidationError, IndexError, struct.error: the request makes no sense.
        """
        _, token = wire.TOKEN_FORM.unpack(parts[0])
        match parts[1]:
            case b"commit":
                problem = self._commit(wire.Commit.model_validate_json(parts[2]), head)
            case b"letter":
                problem = self._letter(wire.Letter.model_validate_json(parts[2]), parts[3], head)
            case b"forget":
                problem = self._forget(wire.Forget.model_validate_json(parts[2]))
            case other:
                raise wire.ProtocolError(f"There is no method {other!r}.")
        self._answers.append((peer, [wire.TOKEN_FORM.pack(wire.ANSWER, token), problem.encode()]))

    def keep(self, letter: DeadLetter, answer: Message) -> None:
        """Keep a dead letter, then answer."""
        self._letters.append(letter)
        self._answers.append(answer)

    def take(self) -> tuple[dict[str, int], list[DeadLetter], list[Message]]:
        """Return what was collected since the last call: cursors, dead letters, answers."""
        taken = self._cursors, self._letters, self._answers
        self._cursors, self._letters, self._answers = {}, [], []
        return taken

    def _commit(self, commit: wire.Commit, head: int) -> str:
        if commit.position > head:
            return _beyond(commit.position, head)
        self._cursors[commit.name] = self._known[commit.name] = commit.position
        return ""

    def _letter(self, letter: wire.Letter, body: bytes, head: int) -> str:
        if letter.position > head:
            return _beyond(letter.position, head)
        self._letters.append(DeadLetter(letter.position, letter.producer, letter.reporter, letter.error, body))
        return ""

    def _forget(self, forget: wire.Forget) -> str:
        known = self._journal.remove_dead_letter(forget.number)
        return "" if known else f"There is no dead letter {forget.number}."


def _beyond(position: int, head: int) -> str:
    return f"The position {position} lies beyond the journal's end {head}."
