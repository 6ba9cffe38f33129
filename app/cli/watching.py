"""Watching a run from its journal: the broker may be down, the picture stays."""

from collections.abc import Callable
from contextlib import closing, suppress
from itertools import islice
from typing import Any

from app.config import RunFolder
from app.core import FlyballError
from app.dashboard import READS, Board, load_board, save_board
from app.events import CATALOGUE, Event, ModelPromoted, Payload, PromotionRejected
from app.events.frames import DeadLetter
from app.journal import JournalReader, NotAJournal, SqliteJournalReader, history
from app.runtime.past import voided_events

INTERESTING: frozenset[type[Payload]] = frozenset(
    {ModelPromoted, PromotionRejected, *(payload for payload in CATALOGUE if payload.notable)}
)
"""Event types kept on the screen, for a reader who looks now and then."""

AT_ONCE = 5000
"""Events read before others get their turn."""

SAVE_AFTER = 20_000
"""Events counted before the board is saved again: seconds of reading for whoever looks next."""


def read_board(folder: RunFolder, reader: JournalReader, on_dead: Callable[[DeadLetter], None]) -> Board:
    """Return what is known of a run: the board as it was last saved, and what was recorded since.

    Raises:
        DamagedRecord: the journal can't be read.
    """
    board = load_board(folder.board, reader)
    start, voided = board.position, voided_events(reader)
    events = history(reader, after=start, types=READS, on_dead=on_dead)
    board.feed(event for event in events if event.sequence not in voided)
    if board.position - start >= SAVE_AFTER:
        keep(folder, board)
    return board


def keep(folder: RunFolder, board: Board) -> None:
    """Save a board if that is possible: without it, the next one only takes longer."""
    with suppress(OSError):
        save_board(folder.board, board)


class JournalWatch:
    """Feeds a board with what the journal holds, a part at a time, from where it was last saved.

    ``behind`` tells whether the last part was cut off: there is more to read at once. ``trouble`` is what the operator
    was told of reading it.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._voided = set[int]()
        self.board, self.began_at = self._begin()
        self._saved_at = self.board.position
        self.behind = False
        self.trouble = ""

    def news(self) -> list[Event[Any]]:
        """Read on. Returns the interesting events among those recorded since the watch began.

        Raises:
            FlyballError: the journal can't be read any further.
        """
        try:
            reader = SqliteJournalReader(self._folder.journal)
        except NotAJournal:
            return []
        with closing(reader):
            wanted, voided = READS | INTERESTING, voided_events(reader)
            if voided.keys() != self._voided:
                self._voided, self.board = set(voided), load_board(self._folder.board, reader)
            events = history(reader, after=self.board.position, types=wanted, on_dead=lambda _: None)
            part = list(islice(events, AT_ONCE))
        self.behind = len(part) == AT_ONCE
        self.board.feed(event for event in part if event.sequence not in voided)
        if self.board.position - self._saved_at >= SAVE_AFTER:
            self.save()
        return [event for event in part if type(event.data) in INTERESTING and event.sequence > self.began_at]

    def save(self) -> None:
        """Save the board, so that the next watch begins here."""
        if self.board.position > self._saved_at:
            keep(self._folder, self.board)
            self._saved_at = self.board.position

    def _begin(self) -> tuple[Board, int]:
        try:
            with closing(SqliteJournalReader(self._folder.journal)) as reader:
                return load_board(self._folder.board, reader), reader.head
        except FlyballError:  # what is wrong with it is told by reading on
            return Board(), 0
