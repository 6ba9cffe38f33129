"""The dashboard with 100,000 events and 100 configurations, in chromium.

``python tests/benchmarks/bench_dashboard.py [FOLDER]``: generates the run in the folder unless it is there, serves it
with ``flyball dashboard``, and prints medians of ten loads of each page and of ten interactions.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import psutil
from playwright.sync_api import Page, sync_playwright

sys.path.append(str(Path(__file__).parents[1] / "support"))
from generated_run import generated, write_generated

from flyball.app.config import GAMES, LAPTOP, RunSettings

EVENTS, COPIES, TIMES = 100_000, 20, 10
KEY = "connect_four_07_2p"
PATHS = ("/", f"/configuration/{KEY}", "/events", f"/league/{KEY}", f"/training/{KEY}", "/logs")
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"


def hundred() -> RunSettings:
    """Return the laptop's five configurations, each 20 times, on 20 nodes."""
    configs = [
        GAMES[key].replace(key=f"{key[:-3]}_{number:02}{key[-3:]}") for number in range(COPIES) for key in LAPTOP
    ]
    workers = tuple(f"selfplay_worker@node-{number:02}" for number in range(COPIES))
    return RunSettings(configs=tuple(configs), selfplay_workers=workers)


@contextmanager
def dashboard(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Serve a run in a process of its own."""
    command = [sys.executable, "-m", "flyball.app.cli", "--run", str(folder), "dashboard", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        try:
            yield line.split()[2].rstrip("/,"), psutil.Process(process.pid)
        finally:
            process.terminate()


def loads(page: Page, url: str) -> float:
    """Return the median first contentful paint of a page in ms."""
    times = []
    for _ in range(TIMES):
        page.goto(url)
        page.wait_for_selector("#connection[data-state=live]")
        while not (painted := float(page.evaluate(PAINT))):
            page.wait_for_timeout(20)
        times.append(painted)
    return median(times)


def interactions(page: Page, act: Callable[[int], Any]) -> float:
    """Return the median ms from an input to its visible effect.

    The effect is the next frame that the browser shows (Event Timing).
    """
    page.evaluate(
        "window.found = []; const add = list => window.found.push(...list.getEntries().map(one => one.duration));"
        "new PerformanceObserver(add).observe({type: 'event', durationThreshold: 16})"
    )
    slowest = []
    for number in range(TIMES):
        page.evaluate("window.found.length = 0")
        act(number)
        page.wait_for_timeout(300)
        slowest.append(max(page.evaluate("window.found"), default=16.0))
    return median(slowest)


def until(page: Page, act: Callable[[], Any], selector: str) -> float:
    """Return ms from an action until an element is shown."""
    began = time.perf_counter()
    act()
    page.wait_for_selector(selector)
    return 1000 * (time.perf_counter() - began)


def processor_ms(process: psutil.Process, url: str) -> float:
    """Return the server's processor time of one answer, mean of 20."""
    before = process.cpu_times()
    for _ in range(20):
        with urlopen(url) as answer:  # the URL is that of the server started here
            answer.read()
    after = process.cpu_times()
    return 1000 * (after.user + after.system - before.user - before.system) / 20


def measure(page: Page, url: str) -> None:
    """Print all figures."""
    for path in PATHS:
        print(f"first paint of {path}: {loads(page, url + path):.0f} ms")  # noqa: T201
    page.goto(f"{url}/")
    page.wait_for_timeout(1500)
    page.focus("#filter")
    typed = interactions(page, lambda number: page.keyboard.press("Backspace" if number % 2 else "7"))
    print(f"overview, a key in the filter: {typed:.0f} ms")  # noqa: T201
    page.goto(f"{url}/configuration/{KEY}")
    whys = []
    for _ in range(TIMES):
        whys.append(until(page, lambda: page.click("#why-current_model"), "dialog[open] .chain"))
        page.keyboard.press("Escape")
        page.wait_for_timeout(100)
    print(f"configuration, why?: {median(whys):.0f} ms")  # noqa: T201
    page.goto(f"{url}/events")
    filters = [filtered(page, kind) for kind in ("decision", "fact") * (TIMES // 2)]
    print(f"events, a filter: {median(filters):.0f} ms")  # noqa: T201
    page.goto(f"{url}/events?pattern=MODEL_PROMOTED")
    opened = []
    for _ in range(TIMES):
        opened.append(until(page, lambda: page.click("#events tbody a"), ".tree .this"))
        page.goto(f"{url}/events?pattern=MODEL_PROMOTED")
    print(f"events, open one with its tree: {median(opened):.0f} ms")  # noqa: T201


def filtered(page: Page, kind: str) -> float:
    """Return ms from the choice of a kind to its events."""
    began = time.perf_counter()
    page.select_option("#kind", kind)
    page.wait_for_selector(f"#events[data-events='kind={kind}'] tbody tr")
    return 1000 * (time.perf_counter() - began)


def main() -> None:
    """Generate the run if need be, and measure."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        if not (folder / "journal.sqlite").exists():
            write_generated(folder / "journal.sqlite", generated(EVENTS, settings=hundred(), seed=3))
        with dashboard(folder) as (url, process), sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = chromium.new_page(viewport={"width": 1440, "height": 900})
            page.goto(f"{url}/")
            while page.query_selector("text=Reading the journal"):
                page.wait_for_timeout(500)
                page.reload()
            used, memory = process.cpu_times(), process.memory_info().rss / 2**20
            print(f"journal read: {used.user + used.system:.1f} s of processor time, {memory:.0f} MiB")  # noqa: T201
            for path in (*PATHS, f"/overview/card/{KEY}", f"/curves/ratings/{KEY}"):
                print(f"processor time of {path}: {processor_ms(process, url + path):.0f} ms")  # noqa: T201
            measure(page, url)
            chromium.close()


if __name__ == "__main__":
    main()
