"""Replaying a journal: a part at a time, with checkpoints from which a replay that was killed goes on."""

from collections.abc import Iterator

from app.core import FlyballError
from app.events import Event, Payload
from app.events.frames import DamagedRecord, DeadLetter, read_events
from app.journal import JournalReader, StateStore, history
from app.runtime.fold import RowKey
from app.runtime.replaying import Replay, Report

EVERY = 50_000
"""Events between checkpoints."""

PART = 64
"""Records that are read at once: what they become fits into a processor's cache until it is folded."""


class CheckpointAhead(FlyballError):
    """A checkpoint lies further on in the journal than the replay shall go."""


def replay_journal(
    reader: JournalReader,
    *,
    first: int = 1,
    last: int | None = None,
    checkpoints: StateStore | None = None,
    every: int = EVERY,
) -> Report:
    """Fold a journal through all controllers and compare.

    Args:
        reader: the journal.
        first: differences before this position are not looked at.
        last: the last position to fold; without it, the journal's present end.
        checkpoints: where to save all state, and to go on from; a finished replay goes on with what is new.
        every: events between checkpoints.

    Raises:
        CheckpointAhead: the saved state is from further on than ``last``.
        ForeignCheckpoint: the saved state is of another journal.
        DamagedRecord: the journal is damaged, or holds an event that this program can't read.
    """
    end = reader.head if last is None else min(last, reader.head)
    after, saved = checkpoints.load() if checkpoints else (0, dict[RowKey, bytes]())
    if after > end:
        raise CheckpointAhead(
            f"The checkpoint is at position {after}, the replay shall end at {end}.", hint="Remove it, or go further."
        )
    replay = Replay(first=first, saved=saved)
    for event in history(reader):
        replay.begin(event.id)
        break
    for position, events in parts(reader, after, end, replay.reads):
        replay.feed(events, keep=checkpoints is not None)
        if checkpoints and (position - after >= every or position == end):
            checkpoints.save(position, replay.changes())
            after = position
    return replay.report(end)


def parts(
    reader: JournalReader, after: int, last: int, types: frozenset[type[Payload]]
) -> Iterator[tuple[int, list[Event[Payload]]]]:
    """Iterate over the events of these types up to a position, some dozens at a time, each part with its end.

    All records are read: to choose among them by their headers is slower when most of them are wanted.

    Raises:
        DamagedRecord: a record is damaged, or an event can't be read.
    """
    names = frozenset(payload.event_type for payload in types)
    while after < last and (chunk := reader.read(after, limit=PART)).position > after:
        events: list[Event[Payload]] = []
        for record in chunk.records:
            events += read_events(record, after=after, types=names, reporter="replay", on_dead=_refuse)
        after = min(chunk.position, last)
        yield after, [event for event in events if event.sequence <= last] if chunk.position > last else events


def _refuse(letter: DeadLetter) -> None:
    raise DamagedRecord(
        f"The event at position {letter.position} can't be read: {letter.error}",
        hint="Was it written by a newer Flyball?",
    )
