"""Pages of the dashboard in a real browser: Debian's chromium, driven by Playwright."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recorded_run import KEY, NEW, OLD, recording

from flyball.app.api.runs import is_listening, locate_run
from flyball.app.events import Event
from flyball.daemons.run_folder import bus_endpoint

WIDE, PHONE = (1440, 900), (390, 844)
PATIENCE_MS = 30_000


@contextmanager
def page_of(browser: Any, url: str, size: tuple[int, int] = WIDE, scheme: str = "light") -> Iterator[Any]:
    """Open a page that must write no error to its console. It must ask no other host for anything."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    wrong: list[str] = []
    page.on("console", lambda one: wrong.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda one: None if one.url.startswith(url) else wrong.append(one.url))
    yield page
    page.evaluate("window.stop()")
    context.close()
    assert wrong == []


def is_live(page: Any) -> None:
    """Wait until the page's stream is open."""
    page.wait_for_selector("#connection[data-state=live]")


def positions(page: Any) -> list[int]:
    return [
        int(one) for one in page.eval_on_selector_all("#events tbody tr", "rows => rows.map(r => r.dataset.position)")
    ]


@contextmanager
def broker_of(folder: Path) -> Iterator[None]:
    """Run the broker of a run alone."""
    place = locate_run(folder)
    command = [sys.executable, "-m", "flyball.app.cli", "--run", str(folder), "daemon", "run", "broker"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not is_listening(bus_endpoint(place.folder, place.load().deployment)):
            assert process.poll() is None
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(60)


def busy_run(count: int) -> list[Event[Any]]:
    """Return more events of the recorded run: requests of self-play, and at last a promotion."""
    run = recording()
    before = len(run.events)
    for _ in range(count):
        run.add(run.events[8].data, run.events[7], KEY)
    run.add(run.events[7].data.replace(model=NEW, previous=OLD, step=1), run.events[14], KEY)
    return run.events[before:]
