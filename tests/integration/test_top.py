"""``flyball top`` on a recorded run, driven by keys."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_run import KEY, recording, write_journal
from running_loop import FLYBALL
from terminal import tmux_terminal
from textual.widgets import DataTable, Input, Static, TabbedContent

from flyball.app.api.runs import locate_run
from flyball.app.cli.top_feed import EventFeed, LogFeed, log_text
from flyball.app.cli.top_screen import EVERYTHING, Details, Top
from flyball.app.config import RunFolder

EVENTS = recording().events
LOG = {
    "timestamp": "2026-01-31T12:00:01.000000Z",
    "severity_text": "ERROR",
    "body": "damaged file set aside",
    "attributes": {"daemon": "training", "node": "laptop", "error": "wrong checksum"},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run folder with a recorded run and a daemon's log."""
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    write_journal(folder.journal, EVENTS)
    folder.log("training").parent.mkdir()
    folder.log("training").write_text(json.dumps(LOG) + "\n")
    return folder.path


def text_of(app: Top, table: str) -> str:
    """Return a table's cells as text."""
    found = app.query_one(f"#{table}", DataTable)
    return "\n".join(" ".join(str(cell) for cell in found.get_row(key)) for key in found.rows)


async def shown(app: Top, pilot: object, table: str, text: str) -> None:
    """Wait until a table shows a text."""
    for _ in range(200):
        if text in text_of(app, table):
            return
        await pilot.pause(0.05)  # type: ignore[attr-defined]
    pytest.fail(f"{table} never shows {text!r}: {text_of(app, table)}")


@pytest.mark.parametrize("width", [80, 140])
async def test_overview_fits_and_keys_lead_to_each_page(run: Path, width: int) -> None:
    app = Top(locate_run(run))
    async with app.run_test(size=(width, 24)) as pilot:
        await shown(app, pilot, "configs", KEY)
        table = app.query_one("#configs", DataTable)
        assert sum(column.get_render_width(table) for column in table.ordered_columns) <= width
        assert "not running" in str(app.query_one("#line", Static).render())
        await pilot.press("3")
        await shown(app, pilot, "event_table", "PROMOTION_REJECTED")
        await pilot.press("4")
        await shown(app, pilot, "log_table", "damaged file set aside wrong checksum")
        await pilot.press("1")
        assert app.query_one(TabbedContent).active == "overview"


async def test_enter_on_a_configuration_shows_its_state(run: Path) -> None:
    app = Top(locate_run(run))
    async with app.run_test(size=(80, 24)) as pilot:
        await shown(app, pilot, "configs", KEY)
        table = app.query_one("#configs", DataTable)
        table.move_cursor(row=table.get_row_index(KEY))
        await pilot.press("enter")
        await shown(app, pilot, "state", "games_played 600 SELFPLAY_COMPLETE")
        assert KEY in str(app.query_one("#config_name", Static).render())


async def test_filter_shows_matching_events_and_enter_their_content(run: Path) -> None:
    app = Top(locate_run(run))
    async with app.run_test(size=(80, 24)) as pilot:
        await shown(app, pilot, "event_table", "TRAINING_COMPLETED")
        await pilot.press("slash", *"MODEL_*", "enter")
        await shown(app, pilot, "event_table", "MODEL_PROMOTED")
        assert "TRAINING_COMPLETED" not in text_of(app, "event_table")
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Details)
        await pilot.press("escape")
        await pilot.press("slash")
        app.query_one("#filter", Input).value = "NO_SUCH_TYPE"
        await pilot.press("enter")
        await pilot.pause()
        assert "MODEL_PROMOTED" in text_of(app, "event_table"), "a wrong pattern changes nothing"


def test_feeds_return_events_once_and_follow_logs(run: Path, tmp_path: Path) -> None:
    feed = EventFeed(locate_run(run), EVERYTHING)
    assert [event.id for event in feed.news()] == [event.id for event in EVENTS]
    assert feed.news() == []
    path = tmp_path / "training.jsonl"
    feed = LogFeed(tmp_path)
    path.write_text('{"cut\n[]\n' + json.dumps(LOG) + "\n" + json.dumps(LOG)[:20])
    assert [line.level for line in feed.news()] == ["ERROR"]
    with path.open("a") as file:
        file.write(json.dumps(LOG)[20:] + "\n")
    assert [line.daemon for line in feed.news()] == ["training"]
    path.write_text(json.dumps(LOG) + "\n")  # rotated
    assert len(feed.news()) == 1
    body = "bad \x1b]0;title\x07\x1b[2J \x9b2J \udcff file"
    (tmp_path / "training.jsonl").write_text(json.dumps({**LOG, "body": body}) + "\n")
    (line,) = LogFeed(tmp_path).news()
    assert log_text(line) == "bad ]0;title [2J 2J file wrong checksum"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_top_on_a_terminal_of_80_columns_leaves_by_q(run: Path, tmp_path: Path) -> None:
    with tmux_terminal(tmp_path, ("env", "NO_COLOR=1", FLYBALL, "--run", str(run), "top"), 80, 24) as terminal:
        lines = terminal.wait_for(lambda lines: any(KEY in line for line in lines) and "q Quit" in lines[-1])
        assert max(map(len, lines)) <= 80
        colours = re.findall(r"\x1b\[[\d;]*?38;2;(\d+);(\d+);(\d+)", terminal.run("capture-pane", "-p", "-e"))
        assert all(red == green == blue for red, green, blue in colours), "NO_COLOR leaves shades of grey"
        terminal.run("send-keys", "q")
        terminal.wait_for(lambda _: terminal.run("display-message", "-p", "#{alternate_on}") == "0\n")


def test_top_without_terminal_or_textual_says_what_to_do(run: Path) -> None:
    done = subprocess.run([FLYBALL, "--run", run, "top"], capture_output=True, text=True, check=False, input="")
    assert (done.returncode, " status, flyball " in done.stderr) == (2, True)
    code = (
        "import sys; sys.modules['textual'] = None\n"
        "from flyball.app.cli import top; top.sys = type('', (), {'stdin': None, 'stdout': None})\n"
        "from types import SimpleNamespace as N; top.sys.stdin = top.sys.stdout = N(isatty=lambda: True)\n"
        "from flyball.app.cli.group import main; main(['--run', sys.argv[1], 'top'])"
    )
    done = subprocess.run([sys.executable, "-c", code, run], capture_output=True, text=True, check=False)
    assert "pip install 'flyball[top]'" in done.stderr
    assert done.returncode == 2


async def test_pattern_with_brackets_is_shown_as_typed(run: Path) -> None:
    app = Top(locate_run(run))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("slash")
        app.query_one("#filter", Input).value = "[/x]"
        await pilot.press("enter")
        await pilot.pause(0.2)
        assert "'[/x]'" in str(app.screen.query_one("Toast").render())


async def test_events_of_the_last_filter_are_not_added(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Top(locate_run(run))
    async with app.run_test(size=(80, 24)) as pilot:
        await shown(app, pilot, "event_table", "TRAINING_COMPLETED")
        look = app._feed.look

        def look_while_another_filter_is_chosen() -> object:
            app._feed.events._position = None
            found = look()
            app.call_from_thread(app.on_input_submitted, Input.Submitted(app.query_one("#filter", Input), "MODEL_*"))
            monkeypatch.undo()
            return found

        monkeypatch.setattr(app._feed, "look", look_while_another_filter_is_chosen)
        await shown(app, pilot, "event_table", "MODEL_PROMOTED")
        await pilot.pause(1.5)
        assert "TRAINING_COMPLETED" not in text_of(app, "event_table")
