"""Virtual time, chance and faults of one seed, and a trace of its steps."""

from collections import Counter, deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random

MOST_STEPS = 400_000
TRACED_STEPS = 60

ODDS = {
    "broker killed": 0.008,
    "broker halted": 0.008,
    "program killed": 0.004,
    "program halted": 0.004,
    "broker killed before the commit": 0.06,
    "broker killed after the commit": 0.06,
    "journal fails, written or not": 0.04,
    "journal full": 0.04,
    "outbox fails, written or not": 0.1,
    "outbox full": 0.1,
    "program killed in the outbox": 0.1,
    "program killed while saving": 0.04,
    "message slow": 0.1,
    "broker slow": 0.04,
}
"""Highest odds of each fault, at each step where it can strike."""

RATES = {
    "connection lost": 2,
    "frame lost": 0.8,
    "network parted": 0.4,
    "asked to greet again": 0.6,
    "clock set": 0.6,
    "journal taken over": 1.0,
    "program ended in order": 0.5,
}
"""Highest number of these faults in a second."""


class Violation(AssertionError):
    """An invariant does not hold."""


class Killed(Exception):
    """The process ends here, as by kill -9."""


class World:
    """The time, the chance and the faults of a seed.

    Each seed has faults of some kinds only, each with odds of its own, because with all at once little gets done
    (swarm testing). ``calm`` ends them.

    Args:
        seed: all choices follow from it.
        traced: number of latest steps to keep; None keeps all.
    """

    def __init__(self, seed: int, *, traced: int | None = TRACED_STEPS) -> None:
        self.rng, self.now, self.is_calm = Random(seed), 0.0, False
        self.struck: Counter[str] = Counter()
        self._trace: deque[tuple[float, str, str, tuple[object, ...]]] = deque(maxlen=traced)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._odds = {kind: self._drawn(most) for kind, most in ODDS.items()}
        self.rates = {kind: self._drawn(most) for kind, most in RATES.items()}

    def _drawn(self, most: float) -> float:
        return most * self.rng.random() ** 2 if self.rng.random() < 0.5 else 0.0

    def strikes(self, kind: str) -> bool:
        """Return True if a fault strikes at this step. It is counted then, and added to the trace."""
        if self.is_calm or not (odds := self._odds[kind]) or self.rng.random() >= odds:
            return False
        self.struck[kind] += 1
        self.note("a fault", "{}", kind)
        return True

    def calm(self) -> None:
        """End all faults."""
        self.is_calm = True

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Schedule an action at a time."""
        heappush(self._agenda, (time, next(self._numbers), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Schedule an action some seconds from now."""
        self.at(self.now + seconds, action)

    def between(self, least: float, most: float) -> float:
        """Draw a number of seconds."""
        return least + (most - least) * self.rng.random()

    def run(self, until: float) -> None:
        """Take the scheduled actions up to a time.

        Raises:
            Violation: there are more actions than in any seed that makes progress.
        """
        agenda = self._agenda
        while agenda and agenda[0][0] <= until:
            self.now, number, action = heappop(agenda)
            if number > MOST_STEPS:
                raise Violation(f"More than {MOST_STEPS} steps: the programs keep each other busy for ever.")
            action()
        self.now = until

    def note(self, who: str, template: str, *values: object) -> None:
        """Add a step of a process to the trace."""
        self._trace.append((self.now, who, template, values))

    def trace(self) -> str:
        """Return the latest steps as lines."""
        return "\n".join(
            f"{time:9.4f} s  {who:<17} {template.format(*values)}" for time, who, template, values in self._trace
        )
