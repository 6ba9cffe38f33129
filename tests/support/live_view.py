"""Draw the live picture of ``flyball up`` as it was when a finished run was stopped: ``make live-view RUN=FOLDER``."""

import sys
from contextlib import closing
from io import StringIO
from itertools import takewhile
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.terminal_theme import MONOKAI

from app.cli import up
from app.cli.up import INTERESTING
from app.config import RunFolder
from app.events import DaemonStopped
from app.journal import SqliteJournalReader, history
from app.status.status import READS, Board

COLUMNS = 136


def live_view(run: Path) -> str:
    """Return the picture as SVG: the last one before the first daemon stopped."""
    console = Console(file=StringIO(), record=True, width=COLUMNS, height=40, force_terminal=True, highlight=False)
    with closing(SqliteJournalReader(RunFolder(run).journal)) as journal:
        recorded = history(journal, types=READS | INTERESTING)
        events = list(takewhile(lambda event: not isinstance(event.data, DaemonStopped), recorded))
    board = Board()
    board.feed(events)
    with patch.object(up, "stdout_console", lambda: console), up.LiveScreen("") as picture:
        for event in events:
            if type(event.data) in INTERESTING:
                picture.event(event)
        picture.status(board.status(events[-1].recordedtime, None, running=True))
        console.export_text()  # forgets all earlier pictures; the last one is printed on leaving
    return console.export_svg(title="flyball up", theme=MONOKAI, unique_id="flyball-up")


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(live_view(Path(sys.argv[1])), encoding="utf-8")
