"""Plans of scenarios, and the watch for their expected steps."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from flyball.app.config import RunSettings
from flyball.app.controllers import FeedbackFold, FeedbackState
from flyball.app.core import SECOND_US, ConfigKey, FlyballError, ModelHash, ShardKey
from flyball.app.events import (
    Event,
    ModelPromoted,
    Payload,
    Scope,
    SelfplayComplete,
)
from flyball.app.store import BlobStore

READS = frozenset(payload for payload in FeedbackFold.reads if payload.scope is Scope.CONFIG)
"""Event types that ``ConfigView`` is folded from."""

Stage = Literal["struck", "detected", "decided", "recovered"]
"""Kind of a step. The trouble takes effect, is noticed, leads to a decision, or is over."""

TRACED = 6
"""Generations of effects that ``flyball trace`` shows by default."""


class NotReady(FlyballError):
    """A configuration lacks what a scenario needs."""


class Pointless(FlyballError, code="usage"):
    """The given time is shorter than the scenario needs."""


@dataclass
class ConfigView:
    """The scenarios' knowledge of one configuration of a run.

    ``promotions`` are those of its models; ``shard`` is its latest; ``workers`` are all that delivered any.
    """

    settings: RunSettings
    state: FeedbackState
    promotions: dict[ModelHash, ModelPromoted] = field(default_factory=dict)
    shard: ShardKey | None = None
    workers: set[str] = field(default_factory=set)

    @property
    def key(self) -> ConfigKey:
        """The configuration's key."""
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
        """Fold an event about the configuration."""
        if type(event.data) in READS:
            step = FeedbackFold(self.settings).step({self.key: self.state}, event)
            self.state = step.rows.get(self.key) or self.state
        if isinstance(event.data, ModelPromoted):
            self.promotions[event.data.model] = event.data
        elif isinstance(event.data, SelfplayComplete):
            self.shard = event.data.shard.key
            if event.data.shard.worker is not None:
                self.workers.add(event.data.shard.worker)


def views_of(settings: RunSettings, events: Iterable[Event[Any]]) -> dict[str, ConfigView]:
    """Fold all events of ``READS`` into a ``ConfigView`` for each configuration."""
    views = {str(config.key): ConfigView(settings, FeedbackState(config_key=config.key)) for config in settings.configs}
    for event in events:
        if event.subject in views:
            views[event.subject].take(event)
    return views


@dataclass(frozen=True, slots=True)
class Expected:
    """An expected step of a scenario.

    Attributes:
        stage: the kind of step.
        kind: the type of the step's event.
        fits: returns whether an event of this type is the step; its second argument holds the earlier steps' events.
        doubt: possible reasons when the step never comes.
    """

    stage: Stage
    kind: type[Payload]
    fits: Callable[[Event[Any], Sequence[Event[Any]]], bool]
    doubt: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a scenario.

    Attributes:
        key: the configuration whose events can be steps; ``None``: any.
        trouble: the event that makes the trouble.
        expected: the steps that should follow, in this order.
        least_seconds: shortest possible duration under the run's settings.
        shorten: lines of settings that make the scenario shorter.
        remains: text shown when the scenario is left before its end: the trouble that remains.
        remedy: the event that repairs what only an operator can repair.
        remedy_after: index of the step after which the scenario publishes the remedy; ``None``: never.
        pulse: event published periodically until the first step is seen.
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
        name: name on the command line.
        purpose: the trouble in one line.
        lacks: returns what a configuration lacks, as the end of a sentence that begins with its key; or ``None``.
        plan: returns the plan for a configuration that lacks nothing; may put artifacts for it into the store.
        takes_config: whether an operator may choose the configuration.
    """

    name: str
    purpose: str
    lacks: Callable[[ConfigView, BlobStore], str | None]
    plan: Callable[[ConfigView, BlobStore], Plan]
    takes_config: bool = True


def choose(scenario: Scenario, views: Mapping[str, ConfigView], key: str | None, store: BlobStore) -> ConfigView:
    """Return the configuration of this key; without a key, a ready one.

    A ready configuration is the first that lacks nothing.

    Raises:
        NotReady: the configuration, or each one without a key, lacks something.
    """
    lacking = {name: scenario.lacks(views[name], store) for name in (views if key is None else (key,))}
    for name, lack in lacking.items():
        if lack is None:
            return views[name]
    reasons = "; ".join(f"{name} {lack}" for name, lack in lacking.items())
    raise NotReady(f"{scenario.name} can't be made now: {reasons}.", hint="Let the loop run on, and try again.")


@dataclass(frozen=True, slots=True)
class ObservedStep:
    """A step that was seen, ``seconds`` after the trouble; ``follows``: the trouble is among its causes."""

    stage: Stage
    event: Event[Any]
    seconds: float
    follows: bool


class Watch:
    """Looks for a plan's steps, in order, after the recorded trouble."""

    def __init__(self, plan: Plan, trouble: Event[Any]) -> None:
        self._plan, self._trouble = plan, trouble
        self._descendants: set[str] = {trouble.id}
        # root of each event's trace, generations after it
        self._trace_of: dict[str, tuple[str, int]] = {trouble.id: (trouble.id, 0)}
        self.seen: list[ObservedStep] = []

    @property
    def awaited(self) -> Expected | None:
        """The step that comes next; ``None`` when all have been seen."""
        return self._plan.expected[len(self.seen)] if len(self.seen) < len(self._plan.expected) else None

    def feed(self, event: Event[Any]) -> ObservedStep | None:
        """Read the next event; return the step if it is awaited."""
        cause = event.envelope.causationid
        if cause in self._descendants:
            self._descendants.add(event.id)
        if cause in self._trace_of and self._trace_of[cause][1] < TRACED:
            root, generation = self._trace_of[cause]
            self._trace_of[event.id] = root, generation + 1
        expected, earlier = self.awaited, [step.event for step in self.seen]
        concerned = event.data.scope is Scope.SYSTEM or self._plan.key in (None, event.subject)
        if expected is None or not (concerned and isinstance(event.data, expected.kind)):
            return None
        if not expected.fits(event, earlier):
            return None
        seconds = (event.recorded_us - self._trouble.recorded_us) / SECOND_US
        step = ObservedStep(expected.stage, event, seconds, follows=event.id in self._descendants)
        self.seen.append(step)
        if event.id not in self._trace_of:  # start at its cause, whose trace shows its other effects too
            root = event.envelope.causationid or event.id
            self._trace_of |= {root: (root, 0), event.id: (root, 1 if root != event.id else 0)}
        return step

    def traces(self) -> dict[str, str]:
        """Return event ids whose traces together show every step.

        The value of an id names the steps in its trace. The ids are the trouble's, unless its trace shows no step, and
        those of other causes of steps.
        """
        steps_by_root: dict[str, list[str]] = {}
        for stage, event in (("injected", self._trouble), *((step.stage, step.event) for step in self.seen)):
            steps_by_root.setdefault(self._trace_of[event.id][0], []).append(f"{stage}: {event.data.event_name}")
        if len(steps_by_root) > 1 and len(steps_by_root[self._trouble.id]) == 1:
            del steps_by_root[self._trouble.id]
        return {root: ", ".join(steps) for root, steps in steps_by_root.items()}
