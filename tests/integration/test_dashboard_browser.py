"""The dashboard in a real browser: Debian's chromium, driven by Playwright."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dashboards import TOKEN, append, served
from recorded_run import KEY, NEW, OLD, recording, write_journal

from app.api.runs import is_listening, locate_run
from app.events import Event, TrainingBlockedByQuality
from app.journal import SqliteJournalReader, history
from daemons.run_folder import bus_endpoint

sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright for Python")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("needs chromium", allow_module_level=True)

EVENTS = recording().events
AXE = (Path(__file__).parents[1] / "support" / "axe" / "axe.min.js").read_text(encoding="utf-8")
PATHS = (
    "/",
    f"/configuration/{KEY}",
    "/events",
    f"/event?id={EVENTS[7].id}",
    f"/league/{KEY}",
    f"/training/{KEY}",
    f"/games?config={KEY}&player=random&against=random&seed=1",
    "/what-if?set=feedback.stall.velocity=3",
    "/logs",
    "/docs",
    "/docs/README.md",
    "/docs/ADR/guide/metrics.md",
    "/sign-in",
)
WIDE, PHONE = (1440, 900), (390, 844)
PATIENCE_MS = 30_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a recorded run; return the dashboard's URL."""
    folder = tmp_path_factory.mktemp("run")
    write_journal(folder / "journal.sqlite", EVENTS)
    with served(folder, TOKEN) as url:
        yield url


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


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["wide", "phone"])
def test_every_page_is_sound_and_accessible(browser, recorded, size, scheme):
    with page_of(browser, recorded, size, scheme) as page:
        for path in PATHS:
            page.goto(recorded + path)
            is_live(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= size[0], path
            page.evaluate(AXE)
            found = page.evaluate("axe.run().then((found) => found.violations)")
            serious = [
                (path, one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")
            ]
            assert serious == []


def test_curve_is_drawn_and_follows_the_theme(browser, recorded):
    with page_of(browser, recorded) as page:
        page.goto(f"{recorded}/")
        page.wait_for_selector(f"[data-ratings={KEY}] canvas")
        light = page.evaluate("getComputedStyle(document.body).color")
        page.click("#theme")
        assert page.inner_text("#theme") == "Dark"
        assert page.evaluate("getComputedStyle(document.body).color") != light
        page.reload()
        assert page.inner_text("#theme") == "Dark"


def test_documents_lead_to_each_other(browser, recorded):
    with page_of(browser, recorded) as page:
        page.goto(f"{recorded}/docs")
        page.click("text=Runbooks")
        page.wait_for_url("**/docs/deploy/runbooks.md")
        page.click("table >> text=key-refused")
        page.wait_for_url("**#key-refused")
        assert page.eval_on_selector("#key-refused", "one => one.getBoundingClientRect().top") < WIDE[1]
        page.click("text=README.md >> nth=0")
        page.wait_for_url("**/docs/deploy/README.md#operate")


def positions(page: Any) -> list[int]:
    return [
        int(one) for one in page.eval_on_selector_all("#events tbody tr", "rows => rows.map(r => r.dataset.position)")
    ]


def test_events_arrive_live_and_after_a_restart_once(browser, tmp_path):
    write_journal(tmp_path / "journal.sqlite", EVENTS[:8])
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    with served(tmp_path) as url:
        port = int(url.rpartition(":")[2])
        page.goto(f"{url}/events")
        assert positions(page) == [8, 7, 6, 5, 4, 3, 2, 1]
        page.select_option("#config", KEY)
        page.wait_for_selector(f"#events[data-events='config={KEY}']")
        is_live(page)
        assert positions(page) == [8, 7, 6, 5, 4]
        append(tmp_path, EVENTS[8:10])
        page.wait_for_selector("#events tr[data-position='10']")
    page.wait_for_selector("#connection[data-state=lost]")
    append(tmp_path, EVENTS[10:14])
    with served(tmp_path, port=port):
        page.wait_for_selector("#events tr[data-position='14']")
        is_live(page)
        assert positions(page) == [14, 12, 11, 10, 9, 8, 7, 6, 5, 4]  # the 13th event is about no configuration
        page.goto(f"{url}/")
        append(tmp_path, EVENTS[14:])
        page.wait_for_selector(".card >> text=PROMOTION_REJECTED")
    context.close()


def test_pages_are_reached_filtered_and_explained_by_keyboard(browser, recorded):
    with page_of(browser, recorded) as page:
        page.goto(f"{recorded}/")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        reached = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.getAttribute('href') ?? document.activeElement.id"))
        pages = set(page.eval_on_selector_all("nav a", "links => links.map(a => a.getAttribute('href'))"))
        assert pages | {f"/configuration/{KEY}", "theme"} <= reached
        page.goto(f"{recorded}/events")
        page.keyboard.press("/")
        page.keyboard.type("MODEL_*")
        page.keyboard.press("Enter")
        page.wait_for_url("**/events?pattern=MODEL_*")
        assert positions(page) == [8]
        page.select_option("#kind", "request")
        page.wait_for_url("**kind=request*")
        assert positions(page) == []
        page.goto(f"{recorded}/configuration/{KEY}")
        page.focus("#why-current_model")
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog[open] .chain")
        assert "MODEL_PROMOTED" in page.inner_text("dialog .chain li:first-child")
        assert "RUN_CONFIGURED" in page.inner_text("dialog .chain li:last-child")
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog:not([open])", state="hidden")


def test_game_is_watched_by_keyboard(browser, recorded):
    with page_of(browser, recorded) as page:
        page.goto(f"{recorded}/games")
        page.fill("[name=player]", "random")
        page.keyboard.press("Enter")
        page.wait_for_url("**player=random*")
        page.wait_for_selector("#game:not(:has(#game-stop)) .board", timeout=4 * PATIENCE_MS)
        assert page.query_selector("#game-next[aria-disabled]")
        page.keyboard.press("Home")
        page.wait_for_selector("text=/Move 0 of/")
        assert page.query_selector_all(".board .cross, .board .nought") == []
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("text=/Move 1 of/")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("text=/Move 2 of/")
        assert len(page.query_selector_all(".board .nought")) == 1
        page.keyboard.press("ArrowLeft")
        page.wait_for_selector("text=/Move 1 of/")
        page.keyboard.press("Space")  # plays
        page.wait_for_selector("#game-play[aria-pressed=true]")
        page.wait_for_selector("text=/Move 3 of/")
        page.keyboard.press("Space")
        page.wait_for_selector("#game-play[aria-pressed=false]")


@contextmanager
def growing(folder: Path, events: Sequence[Event[Any]], per_second: float = 40.0) -> Iterator[None]:
    """Record events one by one in a thread, which has recorded all at the end."""

    def grow() -> None:
        for event in events:
            append(folder, [event])
            time.sleep(1 / per_second)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def busy_run(count: int) -> list[Event[Any]]:
    """Return more events of the recorded run: requests of self-play, and at last a promotion."""
    run = recording()
    for _ in range(count):
        run.add(EVENTS[8].data, EVENTS[7], KEY)
    run.add(EVENTS[7].data.replace(model=NEW, previous=OLD, step=1), EVENTS[14], KEY)
    return run.events[len(EVENTS) :]


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


def marks(page: Any, colour: str) -> int:
    """Return how many marks of a colour a rating chart has."""
    return int(
        page.evaluate(
            """(colour) => {
              const probe = document.createElement("i");
              probe.style.color = `var(${colour})`;
              document.body.append(probe);
              const wanted = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
              probe.remove();
              const canvas = document.querySelector("[data-ratings] canvas");
              const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              let found = 0, inside = false;
              for (let x = 0; x < width; x++) {
                let here = false;
                for (let y = 0; y < height; y++) {
                  const at = 4 * (y * width + x);
                  here ||= data[at + 3] === 255 && wanted.every((part, k) => data[at + k] === part);
                }
                found += here && !inside;
                inside = here;
              }
              return found;
            }""",
            colour,
        )
    )


def test_news_during_the_first_load_draw_one_chart(browser, tmp_path):
    """The news also bring a promotion that no rating has followed yet; it is marked too."""
    write_journal(tmp_path / "journal.sqlite", EVENTS)
    loads: list[str] = []

    def slow(route: Any) -> None:
        if not loads:
            append(tmp_path, busy_run(0))
            time.sleep(2)
        loads.append(route.request.url)
        route.continue_()

    with served(tmp_path) as url, page_of(browser, url) as page:
        page.route("**/curves/ratings/*", slow)
        page.goto(f"{url}/configuration/{KEY}")
        page.wait_for_selector("[data-ratings] canvas")
        while len(loads) < 2 or marks(page, "--good") < 2:
            page.wait_for_timeout(50)
        assert len(page.query_selector_all("[data-ratings] .uplot")) == 1


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


def test_navigation_keeps_the_chosen_configuration(browser, recorded):
    with page_of(browser, recorded) as page:
        page.goto(f"{recorded}/league/{KEY}")
        other = page.eval_on_selector_all("#key option", "all => all.map(one => one.value)")[-1]
        assert other != KEY
        page.select_option("#key", other)
        page.wait_for_url(f"**/league/{other}")
        page.click("nav >> text=Training")
        page.wait_for_url(f"**/training/{other}")
        page.click("nav >> text=Overview")
        page.click("nav >> text=Configuration")
        page.wait_for_url(f"**/configuration/{other}")
        page.click("nav >> text=Games")
        assert page.input_value("#game-config") == other
        page.wait_for_selector("#game-players option", state="attached")


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


def recorded_blocks(folder: Path) -> list[Event[Any]]:
    reader = SqliteJournalReader(folder / "journal.sqlite")
    try:
        return list(history(reader, types=[TrainingBlockedByQuality], on_dead=lambda _: None))
    finally:
        reader.close()


@contextmanager
def broker_of(folder: Path) -> Iterator[None]:
    """Run the broker of a run alone."""
    place = locate_run(folder)
    command = [sys.executable, "-m", "app.cli", "--run", str(folder), "daemon", "run", "broker"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not is_listening(bus_endpoint(place.folder, place.load().deployment)):
            assert process.poll() is None
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(60)


def test_action_is_refused_without_the_token_and_done_with_it(browser, tmp_path):
    write_journal(tmp_path / "journal.sqlite", EVENTS)
    with broker_of(tmp_path), served(tmp_path, TOKEN) as url, page_of(browser, url) as page:
        page.goto(f"{url}/configuration/{KEY}")
        assert page.query_selector(".action") is None
        refused = page.context.request.post(f"{url}/actions/{KEY}/block", form={"reason": "x"}, headers={"origin": url})
        assert refused.status == 403
        page.click("#content >> text=sign in")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector(f".action[action='/actions/{KEY}/block']")
        page.fill(f".action[action='/actions/{KEY}/block'] [name=reason]", "odd games")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=TRAINING_BLOCKED_BY_QUALITY")
        assert recorded_blocks(tmp_path) == []
        page.click("button.primary")
        page.wait_for_selector("text=Recorded at position")
        (block,) = recorded_blocks(tmp_path)
        assert (block.subject, block.data.reason) == (KEY, "odd games")
        assert block.source.startswith("dashboard@")
        page.goto(f"{url}/")
        page.wait_for_selector("text=blocked because odd games")
