"""Traces: the causes and effects of one event.

Chains of causes and effects can span a whole run, so a trace is bounded in both directions. It counts what it omits.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flyball.app.core import HASH_DIGITS, FlyballError
from flyball.app.events import Event, TrainingCompleted

NAMED = 8
"""Number of events named when an id is ambiguous."""

Read = Callable[[], Iterable[Event[Any]]]


class UnknownEvent(FlyballError, code="unknown"):
    """No event's id has this prefix."""


class AmbiguousEvent(FlyballError, code="unknown"):
    """Several events' ids have this prefix."""


@dataclass(frozen=True, slots=True)
class TracedEvent:
    """An event in a trace, ``level`` steps after the first one shown, with ``hidden`` omitted direct effects."""

    event: Event[Any]
    level: int
    hidden: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Causes and effects of one event.

    ``nodes`` lists each event before its effects. ``earlier`` counts the omitted causes before the first node.
    """

    id: str
    nodes: tuple[TracedEvent, ...]
    earlier: int


def trace(read: Read, wanted: str, *, causes: int = 8, effects: int = 6) -> Trace:
    """Find an event with its causes and effects.

    Args:
        read: reads the journal from its beginning at each call; called two or three times.
        wanted: the event's id or its beginning; its position, fewer than ``HASH_DIGITS`` digits without a leading 0; or
            a model's hash or its beginning, for the training that made it.
        causes: most generations shown before the event.
        effects: most generations shown after the event.

    Raises ``UnknownEvent`` or ``AmbiguousEvent``.
    """
    cause_of, made = dict[str, str | None](), dict[str, str]()
    for event in read():
        cause_of[event.id] = event.envelope.causationid
        if isinstance(event.data, TrainingCompleted):
            made.setdefault(event.data.model, event.id)
    is_position = wanted.isdecimal() and len(wanted) < HASH_DIGITS and not wanted.startswith("0")
    event_id = _at(read, int(wanted)) if is_position else _find(cause_of, made, wanted)
    line = ancestors(cause_of, event_id)
    shown = line[: causes + 1]
    levels = {ancestor: level for level, ancestor in enumerate(reversed(shown))}
    depth = levels[event_id] + effects
    hidden: dict[str, int] = defaultdict(int)
    effects_of: dict[str, list[str]] = defaultdict(list)
    for effect, cause in cause_of.items():  # a cause is recorded before its effects
        if cause in levels and effect not in levels and levels[cause] >= levels[event_id]:
            if levels[cause] < depth:
                levels[effect] = levels[cause] + 1
            else:
                hidden[cause] += 1
        if cause in levels and levels.get(effect) == levels[cause] + 1:
            effects_of[cause].append(effect)
    events: dict[str, Event[Any]] = {event.id: event for event in read() if event.id in levels}
    order = _depth_first(shown[-1], effects_of)
    nodes = tuple(TracedEvent(events[node], levels[node], hidden[node]) for node in order)
    return Trace(event_id, nodes, earlier=len(line) - len(shown))


def _at(read: Read, position: int) -> str:
    for event in read():
        if event.sequence == position:
            return event.id
    raise UnknownEvent(f"There is no event at position {position:,}.", hint="See the positions with: flyball tail")


def _find(ids: Iterable[str], made: Mapping[str, str], prefix: str) -> str:
    """Return the only event whose id, or whose model in ``made``, begins with a prefix."""
    matches = [event_id for event_id in ids if event_id.startswith(prefix)]
    matches = matches or [event_id for model, event_id in made.items() if model.startswith(prefix)]
    if prefix in matches:
        return prefix
    if not matches:
        raise UnknownEvent(
            f"There is no event with the id {prefix!r}, nor a trained model with this hash.",
            hint="See the ids with: flyball tail --json",
        )
    if len(matches) > 1:
        more = f" and {len(matches) - NAMED} more" if len(matches) > NAMED else ""
        raise AmbiguousEvent(
            f"{len(matches)} events have ids that begin with {prefix!r}: {', '.join(matches[:NAMED])}{more}.",
            hint="Write more of the id.",
        )
    return matches[0]


def ancestors(cause_of: Mapping[str, str | None], event_id: str | None) -> list[str]:
    """Return the ids of an event and its known causes, nearest first."""
    line: dict[str, None] = {}
    while event_id is not None and event_id in cause_of and event_id not in line:
        line[event_id] = None
        event_id = cause_of[event_id]
    return list(line)


def _depth_first(root: str, effects_of: dict[str, list[str]]) -> Iterable[str]:
    waiting = [root]
    while waiting:
        event_id = waiting.pop()
        yield event_id
        waiting += reversed(effects_of[event_id])
