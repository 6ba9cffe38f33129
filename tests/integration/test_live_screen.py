"""The picture of ``flyball up`` on a real terminal."""

import shutil
import sys
from pathlib import Path

import pytest
from terminal import tmux_terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")

PROGRAM = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from recorded_run import recording
from flyball.app.cli.up_screen import LiveScreen
from flyball.app.status.status import Board

board, stop = Board(), Path(sys.argv[2])
events = recording().events
board.feed(events)
with LiveScreen("Run folder /here. Ctrl-C stops.") as screen:
    while not stop.exists():
        for event in events:
            if event.data.event_name.startswith("PROMOTION"):
                screen.event(event)
        screen.status(board.status(events[-1].recordedtime, None, running=True))
        time.sleep(0.05)
"""


def is_one_picture(lines: list[str]) -> bool:
    """Return whether the screen holds one picture without stale lines."""
    body = lines[2:] if lines and lines[0].startswith("Run folder /here") else lines
    headings = [line for line in lines if line.startswith("configuration")]
    return bool(body) and body[0] in headings and len(headings) == 1 and "PROMOTION_REJECTED" in body[-1]


def test_resizing_leaves_no_stale_lines(tmp_path: Path) -> None:
    tests, stop = Path(__file__).parents[1] / "support", tmp_path / "stop"
    command = (sys.executable, "-c", PROGRAM, str(tests), str(stop))
    with tmux_terminal(tmp_path, command, 150, 40) as terminal:
        terminal.wait_for(is_one_picture)
        for columns, rows in ((60, 40), (150, 14), (200, 50), (40, 30)):
            terminal.resize(columns, rows)
            terminal.wait_for(lambda lines, most=columns: is_one_picture(lines) and max(map(len, lines)) <= most)
        stop.touch()
        terminal.wait_for(lambda _: terminal.run("display-message", "-p", "#{alternate_on}") == "0\n")
        terminal.wait_for(is_one_picture)
