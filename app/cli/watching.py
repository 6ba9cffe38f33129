"""Watching a run from its journal: the broker may be down, the picture stays."""

from collections.abc import Iterator
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
    """Feeds a board with what the journal holds, a part at a time."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.journal
        self.board = Board()
        self.began_at = self._head()

    def news(self) -> Iterator[Event[Any]]:
        """Read on, and iterate over the interesting events among those recorded since the watch began."""
        try:
            reader = SqliteJournalReader(self._path)
        except NotAJournal:
            return
        with closing(reader):
            for event in islice(history(reader, after=self.board.position, types=READS | INTERESTING), AT_ONCE):
                self.board.feed((event,))
                if type(event.data) in INTERESTING and event.sequence > self.began_at:
                    yield event

    def _head(self) -> int:
        try:
            with closing(SqliteJournalReader(self._path)) as reader:
                return reader.head
        except NotAJournal:
            return 0
