"""Events as lines on a terminal."""

import io
import sys

import pytest
from recorded_run import recording
from rich.text import Text

from flyball.app.cli.output import NARROW, write_event
from flyball.app.events import EvaluationCompleted, ModelPromoted
from flyball.app.status.summary import event_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(payload: type, columns: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that show the first event of a type on a terminal of some columns."""
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal)
    write_event(next(event for event in recording().events if isinstance(event.data, payload)), as_json=False)
    return Text.from_ansi(terminal.getvalue()).plain.splitlines()


def test_narrow_terminal_shows_a_decision_whole(monkeypatch):
    lines = shown(ModelPromoted, 80, monkeypatch)
    whole = event_text(next(event for event in recording().events if isinstance(event.data, ModelPromoted))).plain
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert "".join(lines).split()[2:] == whole.split(), "after position and time"
    assert {line[:21] for line in lines[1:]} == {" " * 21}, "indented"


def test_narrow_terminal_cuts_what_is_no_decision(monkeypatch):
    (line,) = shown(EvaluationCompleted, 80, monkeypatch)
    assert line.split()[1] == "12:00:07Z"
    assert len(line) == 80
    assert line.endswith("…")


@pytest.mark.parametrize(("columns", "dated"), [(NARROW - 1, False), (NARROW, True)])
def test_date_is_shown_where_there_is_room(monkeypatch, columns, dated):
    assert ("2026-01-31" in shown(EvaluationCompleted, columns, monkeypatch)[0]) is dated
