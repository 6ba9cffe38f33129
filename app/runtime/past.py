"""Queries of a journal for the run's settings, voided events and dead letters."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import takewhile

from app.config import ForeignSettings, RunSettings
from app.events import Event, EventVoided, RunConfigured
from app.events.frames import DeadLetter
from app.journal import JournalReader, history


def voided_events(journal: JournalReader) -> Mapping[int, Event[EventVoided]]:
    """Return the EVENT_VOIDED of each voided event, by the latter's position."""
    if not journal.landmark(EventVoided.event_type):
        return {}
    found = history(journal, types={EventVoided}, on_dead=lambda _: None)
    return {event.data.position: event for event in found}


def letters_about_events(journal: JournalReader) -> list[DeadLetter]:
    """Return the dead letters about recorded events, in the order of the journal."""
    return sorted((letter for letter in journal.dead_letters() if letter.position), key=lambda one: one.position)


def open_letters(journal: JournalReader) -> list[DeadLetter]:
    """Return the dead letters about recorded events that are not voided."""
    voided = voided_events(journal)
    return [letter for letter in letters_about_events(journal) if letter.position not in voided]


def past_settings(journal: JournalReader) -> Iterator[RunSettings]:
    """Iterate over the settings that were in force, the latest first.

    Settings that a fold skips do not count: see ``Fold``.
    """
    left_out = voided_events(journal)
    for record in journal.headers_back(journal.landmark(RunConfigured.event_type)):
        if RunConfigured.event_type not in record.frame.types:
            continue
        found = history(journal, after=record.first - 1, types={RunConfigured}, on_dead=lambda _: None)
        here = takewhile(lambda event, last=record.last: event.sequence <= last, found)  # type: ignore[misc]
        for event in reversed(list(here)):
            if event.sequence not in left_out:
                with suppress(ForeignSettings):
                    yield RunSettings.recorded(event.data.settings, event.source)


def last_settings(journal: JournalReader) -> RunSettings | None:
    """Return the settings that are in force; None in a new journal."""
    return next(past_settings(journal), None)
