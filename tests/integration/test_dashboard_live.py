"""Pages of the dashboard while a run goes on, in a real browser."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from browsing import PHONE, broker_of, busy_run, is_live, page_of, positions
from dashboards import append, served
from recorded_run import KEY, NEW, OLD, record, recording, write_journal

from flyball.app.events import Event
from flyball.app.journal import SqliteJournal

EVENTS = recording().events


@contextmanager
def growing(folder: Path, events: Sequence[Event[Any]], per_second: float = 40.0) -> Iterator[None]:
    """Record events one by one in a thread, which has recorded all at the end."""

    def grow() -> None:
        with closing(SqliteJournal(folder / "journal.sqlite")) as journal:  # kept open, as the broker keeps it
            started = time.monotonic()
            for number, event in enumerate(events, start=1):
                record(journal, event)
                time.sleep(max(0.0, started + number / per_second - time.monotonic()))

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_busy_run_leaves_scroll_dialog_and_details(browser, tmp_path):
    write_journal(tmp_path / "journal.sqlite", EVENTS)
    events = busy_run(200)
    with served(tmp_path) as url, page_of(browser, url, PHONE) as page:
        page.goto(f"{url}/configuration/{KEY}")
        is_live(page)
        left: list[str] = []
        page.on("framenavigated", lambda frame: left.append(frame.url))
        page.click("#parts-elo_history summary")
        page.click("#why-elo_history")
        page.wait_for_selector("dialog[open] .chain")
        page.evaluate("scrollTo(0, 500)")
        with growing(tmp_path, events):
            page.wait_for_selector(f"#why-current_model[href$='{events[-1].id}']", state="attached")
        assert left == []
        assert page.evaluate("scrollY") == 500
        assert page.query_selector("dialog[open] .chain")
        assert page.query_selector("#parts-elo_history[open]")
        page.goto(f"{url}/")
        page.wait_for_selector(".scroll")
        page.eval_on_selector("[aria-label='Table: Daemons']", "one => { one.scrollLeft = 60; }")
        page.eval_on_selector("[aria-label='Table: Daemons']", "one => { one.dataset.old = 1; }")
        page.evaluate("document.getElementById('daemons').scrollIntoView()")
        page.wait_for_selector("[aria-label='Table: Daemons']:not([data-old])")
        assert page.eval_on_selector("[aria-label='Table: Daemons']", "one => one.scrollLeft") == 60


def test_new_rows_wait_while_older_ones_are_read(browser, tmp_path):
    run = recording()
    for _ in range(40):
        run.add(EVENTS[8].data, EVENTS[7], KEY)
    write_journal(tmp_path / "journal.sqlite", run.events[:-10])
    with served(tmp_path) as url, page_of(browser, url, PHONE) as page:
        page.goto(f"{url}/events")
        is_live(page)
        page.evaluate("scrollTo(0, 200)")
        shown = positions(page)
        append(tmp_path, run.events[-10:])
        page.wait_for_selector("#held >> text=10 new events")
        assert (positions(page), page.evaluate("scrollY")) == (shown, 200)
        page.click("#held")
        page.wait_for_selector(f"#events tr[data-position='{len(run.events)}']")
        assert positions(page)[:12] == [len(run.events) - row for row in range(12)]
        assert not page.is_visible("#held")


def test_new_log_lines_wait_while_older_ones_are_read(browser, tmp_path):
    write_journal(tmp_path / "journal.sqlite", EVENTS)
    (tmp_path / "logs").mkdir()
    with (tmp_path / "logs" / "training.jsonl").open("w") as log, served(tmp_path) as url:
        for number in range(60):
            time_text = f"2026-01-31T12:00:{number:02d}Z"
            line = {"timestamp": time_text, "severity_text": "INFO", "body": f"line {number}", "attributes": {}}
            print(json.dumps(line), file=log, flush=True)
        with page_of(browser, url, PHONE) as page:
            page.goto(f"{url}/logs")
            is_live(page)
            page.wait_for_selector(".logs tbody tr >> text=line 59")
            page.evaluate("scrollTo(0, 300)")
            print(json.dumps(line | {"timestamp": "2026-01-31T12:01:00Z", "body": "news"}), file=log, flush=True)
            page.wait_for_selector("#held >> text=new lines wait")
            assert page.evaluate("scrollY") == 300
            assert page.query_selector(".logs >> text=news") is None
            page.click("#held")
            page.wait_for_selector(".logs tbody tr:first-child >> text=news")
            assert page.is_hidden("#held")


def test_dot_says_whether_the_run_is_running(browser, tmp_path):
    write_journal(tmp_path / "journal.sqlite", EVENTS)
    with served(tmp_path) as url, page_of(browser, url) as page:
        page.goto(f"{url}/events")
        is_live(page)
        assert page.inner_text("#connection") == "not running"
        with broker_of(tmp_path):
            page.wait_for_selector("#connection[data-running=true]")
            assert page.inner_text("#connection") == "live"
        page.wait_for_selector("#connection[data-running=false]")
        assert page.inner_text("#connection") == "not running"


def test_why_dialog_keeps_its_title_and_goes_on(browser, tmp_path):
    run = recording()
    cause = EVENTS[7]
    for _ in range(20):
        cause = run.add(EVENTS[8].data, cause, KEY)
    last = run.add(EVENTS[7].data.replace(model=NEW, previous=OLD, step=1), cause, KEY)
    write_journal(tmp_path / "journal.sqlite", run.events)
    with served(tmp_path) as url, page_of(browser, url, PHONE) as page:
        page.goto(url)
        page.click(f"#why-{KEY}")
        page.wait_for_selector("dialog[open] .chain")
        assert page.url == f"{url}/"
        title, shown = page.query_selector("#why-title").bounding_box(), page.query_selector("#why").bounding_box()
        assert shown["y"] >= 0
        assert title["y"] >= shown["y"]
        assert shown["y"] + shown["height"] <= PHONE[1]
        page.click("dialog >> text=earlier causes")
        page.wait_for_selector("dialog .chain li:first-child:has-text('SELFPLAY_REQUESTED')")
        page.goto(f"{url}/event?id={last.id}")
        page.click("text=earlier causes")
        page.wait_for_selector("h1 >> text=SELFPLAY_REQUESTED")
