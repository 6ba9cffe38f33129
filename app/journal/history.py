"""Reading a journal as typed events."""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from typing import Any

from flyball.app.config import ForeignSettings, RunSettings
from flyball.app.core import is_broker
from flyball.app.events import Event, EventVoided, Payload, RunConfigured
from flyball.app.events.frames import DeadLetter, read_events, refuse
from flyball.app.journal.ports import JournalReader


def history(
    journal: JournalReader,
    *,
    after: int = 0,
    types: Collection[type[Payload]] | None = None,
    on_dead: Callable[[DeadLetter], None] | None = None,
) -> Iterator[Event[Any]]:
    """Iterate over a journal's events in order, up to its head.

    Args:
        journal: read in chunks.
        after: begin after this position.
        types: payload classes wanted; None for all. Records without them are skipped, and their bodies not read.
        on_dead: called for each event that can't be read; None raises an error instead.

    Raises:
        DamagedRecord: a record is damaged, or, without ``on_dead``, an event can't be read.
    """
    names = None if types is None else frozenset(payload.event_type for payload in types)
    while (chunk := journal.read(after, types=names)).position > after:
        for record in chunk.records:
            yield from read_events(record, after=after, types=names, reporter="history", on_dead=on_dead or refuse)
        after = chunk.position


def voided_events(journal: JournalReader) -> Mapping[int, Event[EventVoided]]:
    """Return the EVENT_VOIDED events, keyed by the position of the voided event."""
    events = _landmark_events(journal, EventVoided)
    return {event.data.position: event for event in reversed(list(events))}


def _landmark_events(journal: JournalReader, kind: type[Payload]) -> Iterator[Event[Any]]:
    """Iterate over readable events of a type in ``LANDMARKS``, latest first."""
    for record in journal.landmarks():
        types = frozenset({kind.event_type})
        yield from reversed(read_events(record, types=types, reporter="history", on_dead=lambda _: None))


def first_configured(journal: JournalReader) -> Event[RunConfigured] | None:
    """Return a run's first RUN_CONFIGURED, which stays when old events are deleted; None in an empty journal."""
    event = None
    for event in _landmark_events(journal, RunConfigured):  # noqa: B007 - the last one is the first
        pass
    return event


def recorded_dead_letters(journal: JournalReader) -> list[DeadLetter]:
    """Return the dead letters about recorded events, sorted by position."""
    return sorted((dead for dead in journal.dead_letters() if dead.position), key=lambda dead: dead.position)


def open_dead_letters(journal: JournalReader) -> list[DeadLetter]:
    """Return the dead letters about recorded events, except voided events."""
    voided = voided_events(journal)
    return [dead for dead in recorded_dead_letters(journal) if dead.position not in voided]


def past_settings(journal: JournalReader) -> Generator[RunSettings, None, None]:
    """Iterate over the settings that were in force, the latest first.

    Voided and unreadable settings are skipped.

    Raises:
        ForeignSettings: the broker recorded settings that this version can't read, and no others are readable.
    """
    voided = voided_events(journal)
    foreign: ForeignSettings | None = None
    readable = False
    for event in _landmark_events(journal, RunConfigured):
        if event.sequence in voided:
            continue
        try:
            settings = RunSettings.recorded(event.data.settings, event.source)
        except ForeignSettings as error:
            foreign = foreign or (error if is_broker(event.source) else None)
            continue
        readable = True
        yield settings
    if foreign and not readable:
        raise foreign


def last_settings(journal: JournalReader) -> RunSettings | None:
    """Return the settings in force; None in a new journal. Raises ``ForeignSettings``; see ``past_settings``."""
    return next(past_settings(journal), None)
