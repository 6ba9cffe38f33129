"""The model of a run that all pages show, folded from its events."""

from typing import Any

from app.events import Event
from app.status.status import READS, Board


class RunModel:
    """What is known of a run.

    Attributes:
        position: of the last event that was read.
        board: configurations and daemons, as ``flyball status`` shows them.
        latest: position of the last event about each configuration; that of the system's under the empty string.
    """

    def __init__(self) -> None:
        self.position = 0
        self.board = Board()
        self.latest: dict[str, int] = {}

    def take(self, event: Event[Any]) -> None:
        """Fold one event."""
        self.latest[event.subject] = event.sequence
        if type(event.data) in READS:
            self.board.feed((event,))
