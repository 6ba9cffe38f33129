"""Curves as TensorBoard event files, a folder for each configuration: ``tensorboard --logdir RUN/curves``."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from app.events import Event, Payload
from app.telemetry.curves import CURVES, points

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

MICROSECONDS = 1_000_000


class TensorBoardCurves:
    """Writes the points of events. One that is taken twice is written twice, at the same place of the same curve.

    Args:
        folder: of all configurations' curves; each start of a process adds a file to those that it has points for.
    """

    reads: ClassVar[frozenset[type[Payload]]] = CURVES

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, EventFileWriter] = {}

    def take(self, event: Event[Payload]) -> None:
        """Write an event's points."""
        from tensorboard.compat.proto.event_pb2 import Event as Record
        from tensorboard.compat.proto.summary_pb2 import Summary

        for tag, value, step in points(event.data):
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            record = Record(wall_time=event.recorded_us / MICROSECONDS, step=step, summary=summary)
            self._writer(event.subject).add_event(record)

    def flush(self) -> None:
        """Make sure that what was taken is in the files."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Write what remains, and end."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, config: str) -> "EventFileWriter":
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if config not in self._writers:
            self._writers[config] = EventFileWriter(str(self._folder / config))
        return self._writers[config]
