"""Marks, bands and shares of worker time in a real browser, with a run of every kind of decision."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from browsing import PHONE, WIDE, is_live, page_of
from dashboards import served
from golden_runs import load
from recorded_run import write_journal

KEY = "connect_four_2p"
AXE = (Path(__file__).parents[1] / "support" / "axe" / "axe.min.js").read_text(encoding="utf-8")
EVENTS = load("generated")
CHART = f"[data-ratings={KEY}]"
DRAWN = """() => {
  window.texts = [];  // with their places, since the canvas was last cleared
  const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function (...box) {
    window.texts = [];
    return clearRect.apply(this, box);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    if (this.textAlign === "left") window.texts.push([Number(text), x / devicePixelRatio, y / devicePixelRatio]);
    return fillText.call(this, text, x, y);
  };
}"""


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the run; return the dashboard's URL."""
    folder = tmp_path_factory.mktemp("eventful")
    write_journal(folder / "journal.sqlite", EVENTS)
    with served(folder) as url:
        yield url


def tips(page: Any) -> set[str]:
    """Return what the pointer shows on its way over the lanes below a rating chart."""
    box, over = (page.locator(one).bounding_box() for one in (CHART, f"{CHART} .u-over"))
    found = set()
    for y in range(int(over["y"] + over["height"]) + 8, int(box["y"] + box["height"]) - 40, 12):
        for x in range(int(over["x"]), int(over["x"] + over["width"]), 10):
            page.mouse.move(x, y)
            text = page.evaluate("document.querySelector('.tip:not([hidden])')?.textContent ?? ''")
            found |= {text} - {""}
            if text:
                tip = page.locator(".tip").bounding_box()
                assert tip["x"] >= 0
                assert tip["width"] > 250, "not squeezed at the edge"
                assert tip["x"] + tip["width"] <= page.viewport_size["width"]
    return found


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_marks_say_what_was_decided_why_and_by_whom(browser, eventful, size):
    with page_of(browser, eventful, size) as page:
        page.goto(f"{eventful}/configuration/{KEY}")
        page.wait_for_selector(f"{CHART} canvas")
        page.locator(CHART).scroll_into_view_if_needed()
        found = tips(page)
    assert any("because" in tip and " → " in tip and "by EvaluationFeedbackHandler" in tip for tip in found)
    assert any("weight " in tip and " → " in tip and "by CurriculumIntegration" in tip for tip in found)
    assert any("boost, temperature x 1.5" in tip and "\nended: " in tip for tip in found)
    assert any("gate passed" in tip for tip in found)


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_near_marks_are_one_with_their_number(browser, eventful, size):
    """In each lane they are so far apart that numbers fit between them, and none is lost."""
    with page_of(browser, eventful, size) as page:
        page.add_init_script(f"({DRAWN})()")
        page.goto(f"{eventful}/configuration/{KEY}")
        page.wait_for_selector(f"{CHART} canvas")
        page.wait_for_function("window.texts.length")
        texts = page.evaluate("window.texts")
        promotions = sum(event.subject == KEY and event.data.event_name == "MODEL_PROMOTED" for event in EVENTS)
    lanes: dict[float, list[tuple[float, float]]] = {}
    for number, x, y in texts:
        lanes.setdefault(y, []).append((x, number))
    assert all(number >= 2 for marks in lanes.values() for _, number in marks)
    for marks in lanes.values():
        assert all(after - before >= 20 for (before, _), (after, _) in pairwise(sorted(marks)))
    most = max(lanes.values(), key=lambda marks: sum(number for _, number in marks))
    assert promotions / 2 < sum(number for _, number in most) <= promotions


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["wide", "phone"])
def test_pages_with_marks_and_shares_are_accessible(browser, eventful, size, scheme):
    """The opened table of marks can be read without a pointer, and leads to the events."""
    with page_of(browser, eventful, size, scheme) as page:
        for path in ("/", f"/configuration/{KEY}", f"/controllers/{KEY}", "/report?since=4000"):
            page.goto(eventful + path)
            is_live(page)
            if "configuration" in path:
                page.focus("#marks summary")
                page.keyboard.press("Enter")
                page.keyboard.press("Tab")
                page.keyboard.press("Tab")
                assert page.evaluate("document.activeElement.href").startswith(f"{eventful}/event?id=")
                names = page.eval_on_selector_all("#marks td:nth-child(3)", "all => all.map(one => one.innerText)")
                assert {"promotion", "change of a knob", "rollback"} <= set(names)
            assert page.evaluate("document.documentElement.scrollWidth") <= size[0], path
            page.evaluate(AXE)
            found = page.evaluate("axe.run().then((found) => found.violations)")
            assert [(path, one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] != "minor"] == []


def test_shares_of_worker_time_follow_the_pointer(browser, eventful):
    with page_of(browser, eventful) as page:
        page.goto(f"{eventful}/")
        page.locator("#shares").scroll_into_view_if_needed()
        page.wait_for_selector("[data-legend] canvas")
        whole = page.eval_on_selector_all("#shares-legend li", "all => all.map(one => one.innerText)")
        assert [text.split()[0] for text in whole] == [
            *("tic_tac_toe_2p", "connect_four_2p", "breakthrough6_2p", "hex7_2p", "oh_hell_3p")
        ]
        assert 98 <= sum(int(text.split()[1].rstrip("%,")) for text in whole) <= 102
        page.hover("[data-legend] .u-over", position={"x": 200, "y": 50})
        page.wait_for_function("document.querySelector('[data-legend] .readout')?.textContent.endsWith('Z')")
        assert page.eval_on_selector_all("#shares-legend li", "all => all.map(one => one.innerText)") != whole


@pytest.mark.parametrize("path", ["/report", "/report?since=4000"])
def test_report_of_a_phone_does_not_scroll_sideways(browser, eventful, path):
    with page_of(browser, eventful, PHONE) as page:
        page.goto(eventful + path)
        is_live(page)
        assert page.query_selector(".scroll tbody tr")
        assert page.eval_on_selector_all(".scroll", "all => all.every(one => one.scrollWidth <= one.clientWidth)")
        shown = page.eval_on_selector(".stack td", "one => getComputedStyle(one, '::before').content")
        assert shown == '"Elo before "'
