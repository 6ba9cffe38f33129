"""A record that TensorBoard shows: curves, histograms and texts in the event files of one folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

# tensorboard takes half a second to load, and is loaded when there is something to write.


class Board:
    """Writes into one folder. What is written with an older step than before stands beside it; see ``go_on``.

    Args:
        folder: made with the first thing written; every board adds a file to it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: EventFileWriter | None = None

    def go_on(self, step: int, seconds: float) -> None:
        """Say that the record goes on from ``step``: what its earlier files hold from there on is not shown."""
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._add(seconds, step, session_log=SessionLog(status=SessionLog.START))

    def scalar(self, tag: str, value: float, step: int, seconds: float) -> None:
        """Write a point of a curve; ``seconds`` since 1970."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        self._add(seconds, step, summary=summary)

    def histogram(self, tag: str, values: NDArray[Any], step: int, seconds: float) -> None:
        """Write how values, of any shape, are distributed."""
        from tensorboard.plugins.histogram.summary_v2 import histogram_pb

        self._add(seconds, step, summary=histogram_pb(tag, values))

    def text(self, tag: str, text: str, step: int, seconds: float) -> None:
        """Write a text, which may be Markdown."""
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._add(seconds, step, summary=text_pb(tag, text))

    def flush(self) -> None:
        """Make sure that what was written is in the files."""
        if self._writer:
            self._writer.flush()

    def close(self) -> None:
        """Write what remains, and end."""
        if self._writer:
            self._writer.close()
            self._writer = None

    def _add(self, seconds: float, step: int, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if self._writer is None:
            self._writer = EventFileWriter(str(self._folder))
        self._writer.add_event(Event(wall_time=seconds, step=step, **content))
