"""The dashboard in a real browser: Debian's chromium, driven by Playwright."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import PATIENCE_MS, PHONE, WIDE, broker_of, is_live, page_of, positions
from dashboards import TOKEN, append, served
from generated_run import generated, write_generated
from recorded_run import KEY, recording, write_journal

from flyball.app.events import Event, TrainingBlockedByQuality
from flyball.app.journal import SqliteJournalReader, history

EVENTS = recording().events
AXE = (Path(__file__).parents[1] / "support" / "axe" / "axe.min.js").read_text(encoding="utf-8")
PATHS = (
    "/",
    f"/configuration/{KEY}",
    f"/controllers/{KEY}",
    "/report",
    "/report/comparison",
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


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a recorded run; return the dashboard's URL."""
    folder = tmp_path_factory.mktemp("run")
    write_journal(folder / "journal.sqlite", EVENTS)
    line = {"timestamp": "2026-01-31T12:00:01.123Z", "severity_text": "INFO", "body": "model promoted " * 9}
    line |= {"attributes": {"daemon": "model_lifecycle", "node": "laptop", "event_id": EVENTS[7].id}}
    (folder / "logs").mkdir()
    (folder / "logs" / "model_lifecycle.jsonl").write_text(json.dumps(line))
    other = tmp_path_factory.mktemp("other")
    write_generated(other / "journal.sqlite", tuple(generated(700, seed=3)))
    with served(folder, TOKEN, compared=other) as url:
        yield url


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


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_tables_are_whole_and_labels_beside_their_fields(browser, recorded, size):
    with page_of(browser, recorded, size) as page:
        for path in (f"/configuration/{KEY}", "/events", "/logs", "/report"):
            page.goto(recorded + path)
            is_live(page)
            assert page.query_selector(".scroll tbody tr"), path
            hidden = page.eval_on_selector_all(
                ".scroll:has(tbody tr)",
                "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.ariaLabel)",
            )
            assert hidden == [], path
            apart = page.eval_on_selector_all(
                ".choice label",
                """all => all.filter(label => {
                  const [own, field] = [label, label.control].map(one => one.getBoundingClientRect());
                  return field.top > own.bottom || field.bottom < own.top || field.left < own.right;
                }).map(one => one.innerText)""",
            )
            assert apart == [], path


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
        page.wait_for_url(f"{recorded}/")
        page.click("nav >> text=Configuration")
        page.wait_for_url(f"**/configuration/{other}")
        page.click("nav >> text=Games")
        assert page.input_value("#game-config") == other
        page.wait_for_selector("#game-players option", state="attached")


def recorded_blocks(folder: Path) -> list[Event[Any]]:
    reader = SqliteJournalReader(folder / "journal.sqlite")
    try:
        return list(history(reader, types=[TrainingBlockedByQuality], on_dead=lambda _: None))
    finally:
        reader.close()


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
