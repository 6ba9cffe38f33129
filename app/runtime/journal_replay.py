"""Replaying a journal: a part at a time, with checkpoints from which a replay that was killed goes on."""

from collections.abc import Iterator

from app.core import FlyballError
from app.events import Payload
from app.events.frames import Stored, stored_in
from app.journal import JournalReader, StateStore, history
from app.runtime.fold import RowKey
from app.runtime.past import voided_events
from app.runtime.replaying import Replay, Report

EVERY = 50_000
"""Events between checkpoints."""

PART = 64
"""Records that are read at once: what they become fits into a processor's cache until it is folded."""


class CheckpointAhead(FlyballError):
    """A checkpoint lies beyond the replay's end."""


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
        ForeignCheckpoint: the saved state is of another journal, or of another version.
        DamagedRecord: the journal is damaged.
    """
    end = reader.head if last is None else min(last, reader.head)
    after, saved = checkpoints.load() if checkpoints else (0, dict[RowKey, bytes]())
    voids = {position: void.sequence for position, void in voided_events(reader).items() if void.sequence <= end}
    replay = Replay(first=first, saved=saved, voids=voids)
    for event in history(reader, on_dead=lambda _: None):
        replay.begin(event.id)
        break
    if after > end:
        raise CheckpointAhead(
            f"The checkpoint is at position {after}, beyond the replay's end at {end}.",
            hint="Remove it, or go further.",
        )
    for position, stored in parts(reader, after, end, replay.reads):
        replay.feed_stored(stored, keep=checkpoints is not None)
        if checkpoints and (position - after >= every or position == end):
            checkpoints.save(position, replay.changes())
            after = position
    return replay.report(end)


def parts(
    reader: JournalReader, after: int, last: int, types: frozenset[type[Payload]]
) -> Iterator[tuple[int, list[Stored]]]:
    """Iterate over the events of these types up to a position, some dozens at a time, each part with its end.

    All records are read: to choose among them by their headers is slower when most of them are wanted.

    Raises:
        DamagedRecord: a record is damaged.
    """
    names = frozenset(payload.event_type for payload in types)
    while after < last and (chunk := reader.read(after, limit=PART)).position > after:
        found = [one for record in chunk.records for one in stored_in(record, after=after, types=names)]
        after = min(chunk.position, last)
        yield after, [one for one in found if one.sequence <= last] if chunk.position > last else found
