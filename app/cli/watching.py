"""Watching a run from its journal: the broker may be down, the picture stays."""

from contextlib import closing
from itertools import islice
from typing import Any

from app.config import RunFolder
from app.dashboard import READS, Board
from app.events import (
    DaemonFailed,
    EvaluationFailed,
    Event,
    ModelPromoted,
    ModelRolledBack,
    NodeLost,
    Payload,
    PromotionRejected,
    QualityDegraded,
    RegressionDetected,
    SelfplayFailed,
    TrainingBlockedByQuality,
    TrainingFailed,
)
from app.journal import NotAJournal, SqliteJournalReader, history

INTERESTING: frozenset[type[Payload]] = frozenset(
    {
        DaemonFailed,
        EvaluationFailed,
        ModelPromoted,
        ModelRolledBack,
        NodeLost,
        PromotionRejected,
        QualityDegraded,
        RegressionDetected,
        SelfplayFailed,
        TrainingBlockedByQuality,
        TrainingFailed,
    }
)
"""What somebody who looks now and then wants to have seen."""

AT_ONCE = 5000
"""Events read before others get their turn."""


class JournalWatch:
    """Feeds a board with what the journal holds, a part at a time.

    ``behind`` tells whether the last part was cut off: there is more to read at once. ``trouble`` is what the operator
    was told of reading it.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.journal
        self.board = Board()
        self.began_at = self._head()
        self.behind = False
        self.trouble = ""

    def news(self) -> list[Event[Any]]:
        """Read on. Returns the interesting events among those recorded since the watch began.

        Raises:
            FlyballError: the journal can't be read any further.
        """
        try:
            reader = SqliteJournalReader(self._path)
        except NotAJournal:
            return []
        with closing(reader):
            wanted = READS | INTERESTING
            events = history(reader, after=self.board.position, types=wanted, on_dead=lambda _: None)
            part = list(islice(events, AT_ONCE))
        self.behind = len(part) == AT_ONCE
        self.board.feed(part)
        return [event for event in part if type(event.data) in INTERESTING and event.sequence > self.began_at]

    def _head(self) -> int:
        try:
            with closing(SqliteJournalReader(self._path)) as reader:
                return reader.head
        except NotAJournal:
            return 0
