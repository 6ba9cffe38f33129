"""A planned scenario: what is published, and what is expected to follow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from app.core import FlyballError
from app.events import Event, Payload
from app.scenarios.known import Known
from app.store import BlobStore

Stage = Literal["struck", "detected", "decided", "recovered"]
"""Kind of a step: the trouble takes effect, is noticed, is decided about, is over."""

Earlier = Sequence[Event[Any]]
"""The events of the steps before."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A step that is expected to follow.

    Attributes:
        stage: what it is in the story.
        kind: the type of its event.
        fits: whether an event of this type, about the plan's configuration, is the one; given the steps before.
        doubt: what may be wrong when it never comes.
    """

    stage: Stage
    kind: type[Payload]
    fits: Callable[[Event[Any], Earlier], bool]
    doubt: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a scenario.

    Attributes:
        key: the configuration that it is about; ``None``: whichever is concerned.
        trouble: what is published to make the trouble.
        expected: what is to follow, in this order.
        least_seconds: it cannot be over sooner, by the run's settings.
        shorten: lines of settings with which it is over in a minute or two.
        remains: what is still so when it is left before its end, and no remedy puts right.
        remedy: what puts right what only an operator can put right.
        remedy_after: index of the step after which the remedy is part of the scenario.
        pulse: published every now and then until the first step is seen.
    """

    key: str | None
    trouble: Payload
    expected: tuple[Expected, ...]
    least_seconds: float = 0.0
    shorten: str = ""
    remains: str = ""
    remedy: Payload | None = None
    remedy_after: int | None = None
    pulse: Payload | None = None


class Scenario(Protocol):
    """A kind of trouble."""

    name: ClassVar[str]
    purpose: ClassVar[str]
    takes_config: ClassVar[bool]
    """Return whether it is about one configuration, which may be chosen."""

    def lacks(self, known: Known, store: BlobStore) -> str | None:
        """Say what a configuration lacks for this trouble, in words that end "KEY …"; ``None`` when nothing."""
        ...

    def plan(self, known: Known, store: BlobStore) -> Plan:
        """Plan it for a configuration that lacks nothing; what the trouble is made of is put into the store."""
        ...


class NotReady(FlyballError):
    """A configuration lacks what a trouble needs."""


class Pointless(FlyballError):
    """Nobody can wait so short for the end of a scenario."""


def choose(scenario: Scenario, known: Mapping[str, Known], key: str | None, store: BlobStore) -> Known:
    """Return the configuration called ``key``, or without one the first that has what the trouble needs.

    Raises:
        NotReady: it, or each of them, lacks something.
    """
    asked = known if key is None else {key: known[key]}
    lacking = {name: scenario.lacks(one, store) for name, one in asked.items()}
    found = next((one for name, one in asked.items() if lacking[name] is None), None)
    if found is None:
        said = "; ".join(f"{name} {lack}" for name, lack in lacking.items())
        raise NotReady(f"{scenario.name} can't be made now: {said}.", hint="Let the loop run on, and try again.")
    return found
