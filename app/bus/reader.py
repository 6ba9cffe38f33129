"""A subscription as the broker knows it: cursor, credit, filter. Pure."""

from collections import deque

from app.bus.recent import Piece
from app.bus.wire import EVENTS, EVENTS_FORM

TELL_AFTER = 1024
"""Most positions skipped before an idle filtered subscriber is sent a cursor to advance to."""


class Reader:
    """Deliveries to one subscriber, and its credit.

    Args:
        number: the subscription's id on its connection.
        types: event types wanted; None for all.
        position: begin after it.
        credit: bound on bytes sent and not yet consumed.
        held: bytes up to ``position`` that were sent by an earlier subscription, and are not consumed yet.
    """

    def __init__(self, number: int, types: frozenset[str] | None, position: int, credit: int, *, held: int = 0) -> None:
        self.number = number
        self.types = types
        self.position = position
        self._told = position
        self._credit = credit - held
        self._unconsumed: deque[tuple[int, int]] = deque([(position, held)] if held else ())
        self._catching_up = True

    def is_due(self, head: int) -> bool:
        """Return whether something may be sent: events, or the end of the journal, and there is credit."""
        return self._credit > 0 and (self.position < head or self._catching_up)

    def fell_behind(self) -> None:
        """Note that it is served from the journal until it has caught up."""
        self._catching_up = True

    def consumed(self, position: int) -> None:
        """Return the credit of all deliveries up to a position."""
        while self._unconsumed and self._unconsumed[0][0] <= position:
            self._credit += self._unconsumed.popleft()[1]

    def deliver(self, piece: Piece, head: int) -> list[bytes] | None:
        """Advance over a piece of the journal and return the message that says so, if one is due."""
        self.position = piece.position
        arrived = self.position >= head
        if not piece.raws and not (self._catching_up and arrived) and self.position - self._told < TELL_AFTER:
            return None
        message = [EVENTS_FORM.pack(EVENTS, self.number, self._told, self.position, head), *piece.raws]
        size = sum(map(len, message))
        self._credit -= size
        self._unconsumed.append((self.position, size))
        self._told = self.position
        if arrived:
            self._catching_up = False
        return message
