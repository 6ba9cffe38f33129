"""Traces: the causes and effects of one event.

Chains of causes and effects can span a whole run, so a trace is bounded in both directions. It counts what it omits.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from app.core import FlyballError
from app.events import Event

NAMED = 8
"""Number of events named when an id is ambiguous."""

Read = Callable[[], Iterable[Event[Any]]]


class UnknownEvent(FlyballError, code="unknown"):
    """No event's id has this prefix."""


class AmbiguousEvent(FlyballError, code="unknown"):
    """Several events' ids have this prefix."""


@dataclass(frozen=True, slots=True)
class TracedEvent:
    """An event in a trace.

    ``level``: steps after the first event shown. ``hidden``: number of omitted direct effects.
    """

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


def trace(read: Read, prefix: str, *, causes: int = 8, effects: int = 6) -> Trace:
    """Find an event with its causes and effects.

    Args:
        read: reads the journal from its beginning at each call; called twice.
        prefix: the event's id, or the beginning of the id.
        causes: most generations shown before the event.
        effects: most generations shown after the event.

    Raises ``UnknownEvent`` or ``AmbiguousEvent``.
    """
    cause_of: dict[str, str | None] = {event.id: event.envelope.causationid for event in read()}
    found = _find(cause_of, prefix)
    line = ancestors(cause_of, found)
    shown = line[: causes + 1]
    levels = {event_id: level for level, event_id in enumerate(reversed(shown))}
    depth = levels[found] + effects
    hidden: dict[str, int] = defaultdict(int)
    effects_of: dict[str, list[str]] = defaultdict(list)
    for event_id, cause in cause_of.items():  # a cause is recorded before its effects
        if cause in levels and event_id not in levels and levels[cause] >= levels[found]:
            if levels[cause] < depth:
                levels[event_id] = levels[cause] + 1
            else:
                hidden[cause] += 1
        if cause in levels and levels.get(event_id) == levels[cause] + 1:
            effects_of[cause].append(event_id)
    events: dict[str, Event[Any]] = {event.id: event for event in read() if event.id in levels}
    order = _depth_first(shown[-1], effects_of)
    nodes = tuple(TracedEvent(events[one], levels[one], hidden[one]) for one in order)
    return Trace(found, nodes, earlier=len(line) - len(shown))


def _find(ids: Iterable[str], prefix: str) -> str:
    found = [event_id for event_id in ids if event_id.startswith(prefix)]
    if prefix in found:
        return prefix
    if not found:
        raise UnknownEvent(f"There is no event with the id {prefix!r}.", hint="See the ids with: flyball tail --json")
    if len(found) > 1:
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        raise AmbiguousEvent(
            f"{len(found)} events have ids that begin with {prefix!r}: {', '.join(found[:NAMED])}{more}.",
            hint="Write more of the id.",
        )
    return found[0]


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
