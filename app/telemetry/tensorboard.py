"""Curves as TensorBoard event files, a folder for each configuration: ``tensorboard --logdir RUN/curves``."""

from pathlib import Path
from typing import ClassVar

from app.events import Event, Payload
from app.telemetry.board import Board
from app.telemetry.curves import CURVES, points

MICROSECONDS = 1_000_000


class TensorBoardCurves:
    """Writes the points of events. One that is taken twice is written twice, at the same place of the same curve.

    Args:
        folder: of all configurations' curves; each start of a process adds a file to those that it has points for.
    """

    reads: ClassVar[frozenset[type[Payload]]] = CURVES

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._boards: dict[str, Board] = {}

    def take(self, event: Event[Payload]) -> None:
        """Write an event's points."""
        for tag, value, step in points(event.data):
            board = self._boards.setdefault(event.subject, Board(self._folder / event.subject))
            board.scalar(tag, value, step, event.recorded_us / MICROSECONDS)

    def flush(self) -> None:
        """Make sure that what was taken is in the files."""
        for board in self._boards.values():
            board.flush()

    def close(self) -> None:
        """Write what remains, and end."""
        for board in self._boards.values():
            board.close()
        self._boards.clear()
