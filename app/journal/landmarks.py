"""Events that are found without looking through the journal: the latest of each of a few types."""

from collections.abc import Iterable

from app.events import EventVoided, RunConfigured
from app.events.frames import Record

LANDMARKS = frozenset({EventVoided.event_type, RunConfigured.event_type})
"""Types whose latest event every journal can name at once; see ``JournalReader.landmark``."""


def landmarks_in(records: Iterable[Record]) -> dict[str, int]:
    """Return the position of the last event of each of these types among some records."""
    found: dict[str, int] = {}
    for record in records:
        frame = record.frame
        if not LANDMARKS.isdisjoint(frame.types):
            for position, kind in enumerate(frame.type_refs, record.first):
                if frame.types[kind] in LANDMARKS:
                    found[frame.types[kind]] = position
    return found
