"""Selecting events of a journal by pattern, configuration and range."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from flyball.app.core import BadUsage
from flyball.app.events import CATALOGUE, Event, Payload, matching
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import DeadLetter
from flyball.app.journal import JournalReader, history
from flyball.daemons.clock import SystemClock

MOST_DIGITS = 18
"""Digits of a position; all positions fit into 64 bits."""

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice of events by type (None: all) and configuration (None: any)."""

    types: frozenset[type[Payload]] | None
    config_key: str | None

    def read(
        self, reader: JournalReader, after: int = 0, *, on_dead: Callable[[DeadLetter], None]
    ) -> Iterator[Event[Any]]:
        """Iterate over the selected events after a position. ``on_dead`` receives events that can't be read."""
        for event in history(reader, after=after, types=self.types, on_dead=on_dead):
            if self.config_key in (None, event.subject):
                yield event


def select(patterns: Sequence[str | type[Payload]], config_key: str | None) -> Selection:
    """Return the selection for payload classes, and for glob patterns on event names or types.

    A base class, such as ``DaemonFact``, stands for all its event types. Raises ``UnknownEventType`` for a pattern
    without a match, or ``BadUsage`` for anything else.
    """
    types = frozenset(payload for pattern in patterns for payload in _types_of(pattern))
    return Selection(types if patterns else None, config_key)


def _types_of(pattern: str | type[Payload]) -> Iterable[type[Payload]]:
    if isinstance(pattern, str):
        return matching(pattern)
    try:
        types = [payload for payload in CATALOGUE if issubclass(payload, pattern)]
    except TypeError:  # no class
        types = []
    if not types:
        hint = "Give a name or a class of flyball.events: 'MODEL_PROMOTED' or events.ModelPromoted."
        raise BadUsage(f"{pattern!r} is no event type.", hint=hint)
    return types


def before_last(reader: JournalReader, count: int, selection: Selection, end: int) -> int:
    """Return the position before the last ``count`` selected events up to ``end``. Reads only headers."""
    names = None if selection.types is None else {payload.event_type for payload in selection.types}

    def positions() -> Iterator[int]:
        for record in reader.headers_back(end):
            frame = record.frame
            if names is not None and names.isdisjoint(frame.types):
                continue
            events = zip(range(record.first, record.last + 1), frame.type_refs, frame.subject_refs, strict=True)
            for position, kind, subject in reversed(list(events)):
                named = names is None or frame.types[kind] in names
                if position <= end and named and selection.config_key in (None, frame.subjects[subject]):
                    yield position

    return min(islice(positions(), count), default=end + 1) - 1


def before_since(reader: JournalReader, since: str) -> int:
    """Return the position before the first event at or after ``since``.

    ``since`` is a position, a time (ISO 8601) or an age (``10m``). Raises ``BadUsage`` for anything else.
    """
    if since.isdecimal():
        return reader.head if len(since) > MOST_DIGITS else min(max(int(since) - 1, 0), reader.head)
    try:
        start_us = (_moment(since) - EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):  # not a time, or beyond the calendar
        raise BadUsage(f"{since!r} is not a time: write 10m, 2h, a position, or 2026-01-31T12:00.") from None
    positions = range(reader.first, reader.head + 1)
    return (
        reader.first
        - 1
        + bisect_left(positions, start_us, key=lambda position: next(reader.headers_back(position)).recorded_us)
    )


def _moment(text: str) -> datetime:
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return SystemClock().now() - timedelta(**{UNITS[match[2]]: float(match[1])})
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
