"""Recorded events by position, with their causes and effects. The index finds the positions."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

from flyball.app.api.runs import open_journal
from flyball.app.core import FlyballError
from flyball.app.dashboard.feed import Feed
from flyball.app.dashboard.index import EventIndex
from flyball.app.events import Event
from flyball.app.events.frames import read_events
from flyball.app.status.trace import Trace, TracedEvent

CAUSES, EFFECTS = 8, 6
"""Generations shown before and after an event."""

BREADTH = 12
"""Direct effects shown of one event."""

MOST_SHOWN = 150
"""Events of one trace."""


class NoSuchEvent(FlyballError):
    """The dashboard knows no event with this id."""


def events_at(feed: Feed, positions: Iterable[int]) -> list[Event[Any]]:
    """Read the events at some positions; skip unreadable ones."""
    events: list[Event[Any]] = []
    with open_journal(feed.place) as reader:
        for position in positions:
            records = reader.read(position - 1, limit=1).records
            candidates = chain.from_iterable(
                read_events(record, after=position - 1, reporter="dashboard", on_dead=lambda _: None)
                for record in records
            )
            events += [event for event in candidates if event.sequence == position]
    return events


def event_of(feed: Feed, event_id: str) -> Event[Any]:
    """Read the event with an id. Raises ``NoSuchEvent``."""
    with feed.reading() as model:
        position = model.index.find(event_id)
    events = [] if position is None else events_at(feed, [position])
    if not events or events[0].id != event_id:
        raise NoSuchEvent(
            f"There is no event {event_id!r} among those that the dashboard remembers.",
            hint=f"Of an older one, see: flyball trace {event_id}",
        )
    return events[0]


def causes_of(feed: Feed, event: Event[Any]) -> list[Event[Any]]:
    """Return an event and at most ``CAUSES`` causes, nearest first."""
    with feed.reading() as model:
        line = _line(model.index, event.sequence)[: CAUSES + 1]
    return events_at(feed, line)


def trace_of(feed: Feed, event: Event[Any]) -> Trace:
    """Return the trace of an event: its causes and effects."""
    with feed.reading() as model:
        line = _line(model.index, event.sequence)
        shown = line[: CAUSES + 1]
        nodes = [(position, level, 0) for level, position in enumerate(reversed(shown[1:]))]
        nodes += _effects(model.index, event.sequence, len(shown) - 1)
    events = {event.sequence: event for event in events_at(feed, (position for position, _, _ in nodes))}
    traced = tuple(TracedEvent(events[at], level, hidden) for at, level, hidden in nodes if at in events)
    return Trace(event.id, traced, earlier=len(line) - len(shown))


def _line(index: EventIndex, position: int) -> list[int]:
    """Return the positions of an event and its causes, nearest first."""
    line: dict[int, None] = {}
    at: int | None = position
    while at is not None and at not in line:
        line[at] = None
        at = index.cause(at)
    return list(line)


def _effects(index: EventIndex, root: int, level: int) -> list[tuple[int, int, int]]:
    """Return (position, level, hidden effects) of an event and its effects. An event comes before its own effects."""
    deepest, nodes, waiting = level + EFFECTS, list[tuple[int, int, int]](), [(root, level)]
    while waiting:
        at, depth = waiting.pop()
        effects = index.effects(at)
        room = 0 if depth == deepest else max(0, min(BREADTH, MOST_SHOWN - len(nodes) - len(waiting)))
        nodes.append((at, depth, len(effects) - len(effects[:room])))
        waiting += [(effect, depth + 1) for effect in reversed(effects[:room])]
    return nodes
