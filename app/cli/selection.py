"""Reading the run's journal: opening it, and selecting events by pattern, configuration and range."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import click

from app.cli.options import Place
from app.cli.output import note
from app.config import GAMES
from app.config.loading import UnknownConfig
from app.events import CATALOGUE, Event, Payload, resolve
from app.events.envelope import EPOCH
from app.events.frames import DeadLetter
from app.journal import JournalReader, NotAJournal, SqliteJournalReader, history
from app.journal.history import last_settings, past_settings
from daemons.clock import SystemClock

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice of events by type (None: all) and configuration (None: any)."""

    types: frozenset[type[Payload]] | None
    config_key: str | None

    def read(self, reader: JournalReader, after: int = 0) -> Iterator[Event[Any]]:
        """Iterate over the selected events after a position."""
        for event in history(reader, after=after, types=self.types, on_dead=complain):
            if self.config_key in (None, event.subject):
                yield event


def select(patterns: Sequence[str], config_key: str | None) -> Selection:
    """Return the selection for glob patterns on event names or types. Raises ``UnknownEventType`` for no match."""
    types = frozenset(payload for pattern in patterns for payload in _matching(pattern))
    return Selection(types if patterns else None, config_key)


def _matching(pattern: str) -> list[type[Payload]]:
    if not MAGIC.search(pattern):
        return [resolve(pattern)]
    name, kind = pattern.upper(), pattern.lower()
    kinds = (kind, f"flyball.{kind}")
    found = [
        p for p in CATALOGUE if fnmatchcase(p.event_name, name) or any(fnmatchcase(p.event_type, k) for k in kinds)
    ]
    return found or [resolve(pattern)]


def complain(dead: DeadLetter) -> None:
    """Warn on stderr that an event can't be read."""
    note(f"The event at position {dead.position} can't be read: {dead.error}")


@contextmanager
def open_journal(place: Place) -> Iterator[SqliteJournalReader]:
    """Open the run's journal for reading. Raises ``NotAJournal``."""
    if not place.folder.journal.exists():
        hint = "Name its folder by --run, or begin one: flyball up."
        raise NotAJournal(f"There is no run in {place.folder.path}.", hint=hint)
    with closing(SqliteJournalReader(place.folder.journal)) as reader:
        yield reader


@contextmanager
def open_run(place: Place) -> Iterator[SqliteJournalReader]:
    """Open the run's journal, and refuse settings of another version. Raises ``NotAJournal`` or ``ForeignSettings``."""
    with open_journal(place) as reader:
        last_settings(reader)
        yield reader


def check_config(reader: JournalReader | None, config_key: str | None) -> None:
    """Refuse a configuration that neither the run nor Flyball knows. Raises ``UnknownConfig``, naming the nearest."""
    if config_key is None or config_key in GAMES:
        return
    past = past_settings(reader) if reader else ()
    known = {str(key) for key in (*GAMES, *(config.key for settings in past for config in settings.configs))}
    if config_key not in known:
        near = get_close_matches(config_key, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(sorted(known))}."
        raise UnknownConfig(f"There is no configuration {config_key!r}.", hint=hint)


def check_played(reader: JournalReader, place: Place, config_key: str) -> None:
    """Refuse a configuration that the run has not played since its last start. Raises ``UnknownConfig``."""
    settings = last_settings(reader)
    played = sorted(config.key for config in settings.configs) if settings else []
    if played and config_key not in played:
        hint = f"It plays {', '.join(played)}."
        raise UnknownConfig(f"The run in {place.folder.path} does not play {config_key}.", hint=hint)


def before_last(reader: JournalReader, count: int, selection: Selection, end: int) -> int:
    """Return the position before the last ``count`` selected events up to ``end``; reads only headers."""
    names = None if selection.types is None else {payload.event_type for payload in selection.types}

    def wanted() -> Iterator[int]:
        for record in reader.headers_back(end):
            frame = record.frame
            if names is not None and names.isdisjoint(frame.types):
                continue
            events = zip(range(record.first, record.last + 1), frame.type_refs, frame.subject_refs, strict=True)
            for position, kind, subject in reversed(list(events)):
                named = names is None or frame.types[kind] in names
                if position <= end and named and selection.config_key in (None, frame.subjects[subject]):
                    yield position

    return min(islice(wanted(), count), default=end + 1) - 1


def before_since(reader: JournalReader, since: str) -> int:
    """Return the position before the first event since a position, a time (ISO 8601), or an age (``10m``)."""
    if since.isdecimal():
        return min(max(int(since) - 1, 0), reader.head)
    start_us = (_moment(since) - EPOCH) // timedelta(microseconds=1)
    positions = range(1, reader.head + 1)
    return bisect_left(positions, start_us, key=lambda position: next(reader.headers_back(position)).recorded_us)


def _moment(text: str) -> datetime:
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return SystemClock().now() - timedelta(**{UNITS[match[2]]: float(match[1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: write 10m, 2h, a position, or a time such as 2026-01-31T12:00.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def complete_types(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Complete event names."""
    return [payload.event_name for payload in CATALOGUE if payload.event_name.startswith(incomplete.upper())]
