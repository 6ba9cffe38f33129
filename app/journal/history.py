"""Reading a journal as typed events."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from app.events import Event, Payload
from app.events.frames import DeadLetter, read_events, refuse
from app.journal.ports import JournalReader


def history(
    journal: JournalReader,
    *,
    after: int = 0,
    types: Collection[type[Payload]] | None = None,
    on_dead: Callable[[DeadLetter], None] | None = None,
) -> Iterator[Event[Any]]:
    """Iterate over the events that are in a journal, in order, up to its head.

    Args:
        journal: read from, a bounded part at a time.
        after: begin after this position.
        types: payload classes wanted; None for all. The bodies of the others are not read.
        on_dead: called with events that can't be read; without it they are an error.

    Raises:
        DamagedRecord: a record is damaged, or, without ``on_dead``, an event can't be read.
    """
    names = None if types is None else frozenset(payload.event_type for payload in types)
    while (chunk := journal.read(after, types=names)).position > after:
        for record in chunk.records:
            yield from read_events(record, after=after, types=names, reporter="history", on_dead=on_dead or refuse)
        after = chunk.position
