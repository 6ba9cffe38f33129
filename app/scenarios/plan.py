"""A scenario: what it has to know of a configuration, its plan, and watching a run for the expected steps. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.config import RunSettings
from app.controllers import FeedbackFold, FeedbackState
from app.core import ConfigKey, FlyballError, ModelHash, ShardKey
from app.events import (
    Event,
    ModelPromoted,
    Payload,
    Scope,
    SelfplayComplete,
)
from app.store import BlobStore

READS = frozenset(payload for payload in FeedbackFold.reads if payload.scope is Scope.CONFIG)
"""The event types that ``Known`` is read from."""

Stage = Literal["struck", "detected", "decided", "recovered"]
"""Kind of a step: the trouble takes effect, is noticed, is decided about, is over."""

TRACED = 6
"""Generations of effects that ``flyball trace`` shows by default."""


class NotReady(FlyballError):
    """A configuration lacks what a trouble needs."""


class Pointless(FlyballError):
    """The wait is too short for the end of a scenario."""


@dataclass
class Known:
    """One configuration of a run: its state, the promotions of its models, and the latest shard that was played."""

    settings: RunSettings
    state: FeedbackState
    promotions: dict[ModelHash, ModelPromoted] = field(default_factory=dict)
    shard: ShardKey | None = None

    @property
    def key(self) -> ConfigKey:
        """The configuration."""
        return self.state.config_key

    @property
    def model(self) -> ModelHash | None:
        """The current model, if there is one."""
        return self.state.lineage.current_model

    @property
    def promotion(self) -> ModelPromoted | None:
        """The promotion of the current model."""
        return None if self.model is None else self.promotions.get(self.model)

    def take(self, event: Event[Any]) -> None:
        """Take in an event about the configuration."""
        if type(event.data) in READS:
            step = FeedbackFold(self.settings).step({self.key: self.state}, event)
            self.state = step.rows.get(self.key) or self.state
        if isinstance(event.data, ModelPromoted):
            self.promotions[event.data.model] = event.data
        elif isinstance(event.data, SelfplayComplete):
            self.shard = event.data.shard.key


def known_of(settings: RunSettings, events: Iterable[Event[Any]]) -> dict[str, Known]:
    """Return what is known of each configuration of a run, in the run's order, from all events of ``READS``."""
    found = {str(one.key): Known(settings, FeedbackState(config_key=one.key)) for one in settings.configs}
    for event in events:
        if event.subject in found:
            found[event.subject].take(event)
    return found


@dataclass(frozen=True, slots=True)
class Expected:
    """A step that is expected to follow.

    Attributes:
        stage: its kind.
        kind: the type of its event.
        fits: whether an event of this type, about the configuration, is the one; given the earlier steps' events.
        doubt: what may be wrong when it never comes.
    """

    stage: Stage
    kind: type[Payload]
    fits: Callable[[Event[Any], Sequence[Event[Any]]], bool]
    doubt: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a scenario.

    Attributes:
        key: the configuration that it is about; ``None``: whichever is concerned.
        trouble: what is published to make the trouble.
        expected: the steps that are to follow, in this order.
        least_seconds: it cannot be over sooner, by the run's settings.
        shorten: lines of settings with which it is over in a minute or two.
        remains: what remains when it is left before its end, and no remedy puts right.
        remedy: what puts right what only an operator can put right.
        remedy_after: index of the step after which the remedy is part of the scenario.
        pulse: published again and again until the first step is seen.
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


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of trouble.

    Attributes:
        name: on the command line.
        purpose: the trouble in a line.
        lacks: returns what a configuration lacks, as the end of a sentence that begins with its key; or ``None``.
        plan: plans it for a configuration that lacks nothing, and puts what the trouble is made of into the store.
        takes_config: whether it is about one configuration, which may be chosen.
    """

    name: str
    purpose: str
    lacks: Callable[[Known, BlobStore], str | None]
    plan: Callable[[Known, BlobStore], Plan]
    takes_config: bool = True


def choose(scenario: Scenario, known: Mapping[str, Known], key: str | None, store: BlobStore) -> Known:
    """Return the configuration of this key, or without one the first that has what the trouble needs.

    Raises:
        NotReady: it, or each of them, lacks something.
    """
    lacking = {name: scenario.lacks(known[name], store) for name in (known if key is None else (key,))}
    for name, lack in lacking.items():
        if lack is None:
            return known[name]
    reasons = "; ".join(f"{name} {lack}" for name, lack in lacking.items())
    raise NotReady(f"{scenario.name} can't be made now: {reasons}.", hint="Let the loop run on, and try again.")


@dataclass(frozen=True, slots=True)
class Seen:
    """A step that was seen, seconds after the trouble; ``follows``: the trouble is among its causes."""

    stage: Stage
    event: Event[Any]
    seconds: float
    follows: bool


class Watch:
    """Looks for a plan's steps, in their order, among the events from the recorded trouble on."""

    def __init__(self, plan: Plan, trouble: Event[Any]) -> None:
        self._plan, self._trouble = plan, trouble
        self._descendants: set[str] = {trouble.id}
        self._shown: dict[str, tuple[str, int]] = {trouble.id: (trouble.id, 0)}  # trace's root, generations after it
        self.seen: list[Seen] = []

    @property
    def awaited(self) -> Expected | None:
        """The step that comes next; ``None`` when all have been seen."""
        return self._plan.expected[len(self.seen)] if len(self.seen) < len(self._plan.expected) else None

    def feed(self, event: Event[Any]) -> Seen | None:
        """Take in the next event. Returns the step that it is, if it is one."""
        cause = event.envelope.causationid
        if cause in self._descendants:
            self._descendants.add(event.id)
        if cause in self._shown and self._shown[cause][1] < TRACED:
            root, generation = self._shown[cause]
            self._shown[event.id] = root, generation + 1
        expected, seen = self.awaited, [seen.event for seen in self.seen]
        concerned = event.data.scope is Scope.SYSTEM or self._plan.key in (None, event.subject)
        if expected is None or not (concerned and isinstance(event.data, expected.kind) and expected.fits(event, seen)):
            return None
        seconds = (event.recorded_us - self._trouble.recorded_us) / 1e6
        found = Seen(expected.stage, event, seconds, follows=event.id in self._descendants)
        self.seen.append(found)
        if event.id not in self._shown:  # its cause shows what else came of it at once
            root = event.envelope.causationid or event.id
            self._shown |= {root: (root, 0), event.id: (root, 1 if root != event.id else 0)}
        return found

    def traces(self) -> dict[str, str]:
        """Return the ids whose traces together show every step, each with the steps that it shows.

        They are the trouble's, unless it caused no step, and those of the steps' other causes.
        """
        found: dict[str, list[str]] = {}
        for stage, event in (("injected", self._trouble), *((seen.stage, seen.event) for seen in self.seen)):
            found.setdefault(self._shown[event.id][0], []).append(f"{stage}: {event.data.event_name}")
        if len(found) > 1 and len(found[self._trouble.id]) == 1:
            del found[self._trouble.id]
        return {root: ", ".join(steps) for root, steps in found.items()}
