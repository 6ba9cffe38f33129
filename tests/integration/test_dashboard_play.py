"""A person plays in a real browser: Debian's chromium, driven by Playwright."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from browsing import PHONE, WIDE, is_live, page_of
from dashboards import TOKEN, served
from recorded_run import recording, write_journal

from flyball.app.api.playing import Opinion
from flyball.app.dashboard.jobs import PageJob
from flyball.app.dashboard.playing import PlayedGame, PlayedGames

AXE = (Path(__file__).parents[1] / "support" / "axe" / "axe.min.js").read_text(encoding="utf-8")
KEY, HEARTS = "tic_tac_toe_2p", "hearts_4p"
OVER = "text=/(X wins|O wins|Drawn)\\./"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_journal(folder / "journal.sqlite", recording().events)
    (folder / "flyball.toml").write_text(f'configs = ["{KEY}", "{HEARTS}"]\n')
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with served(folder, TOKEN) as url:
        yield url


@contextmanager
def signed_in(browser: Any, url: str, size: tuple[int, int] = WIDE, scheme: str = "light") -> Iterator[Any]:
    with page_of(browser, url, size, scheme) as page:
        page.goto(f"{url}/sign-in?to=/games")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("#play-form button")
        is_live(page)
        yield page


def begin(page: Any, key: str, seat: str, seed: str) -> None:
    """Begin a game against the random bot."""
    page.eval_on_selector("#play-config", f"one => one.add(new Option('{key}', '{key}', true, true))")
    for name, value in {"against": "random", "seat": seat, "seed": seed}.items():
        page.fill(f"#play-form [name={name}]", value)
    page.click("#play-form button")
    page.wait_for_url("**/games/play/*")
    page.wait_for_selector("#play .spot")
    is_live(page)  # so that the page's scripts have begun


def is_sound(page: Any, width: int) -> None:
    """Check that a page is accessible and not wider than the window."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(AXE)
    found = page.evaluate("axe.run().then((found) => found.violations)")
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == []


def test_game_is_clicked_to_its_end_kept_and_found(browser, url, folder):
    with signed_in(browser, url) as page:
        begin(page, KEY, seat="1", seed="2")
        while page.query_selector(OVER) is None:
            marks = len(page.query_selector_all(".board .cross, .board .nought"))
            page.click("#play .spot >> nth=0")
            page.wait_for_function(
                "marks => document.querySelectorAll('.board .cross, .board .nought').length > marks + 1"
                " && document.querySelector('#play .spot, #play .buttons')",
                arg=marks,
            )
        result = page.inner_text(".game-state strong")
        page.reload()  # the game is in the server's memory
        page.wait_for_selector(OVER)
        page.click("button:text-is('Keep')")
        page.click("text=look at it move by move")
        page.wait_for_selector("text=/Move 0 of/")
        is_live(page)
        is_sound(page, WIDE[0])
        page.keyboard.press("End")
        page.wait_for_selector(f"text={result}")
        page.click("nav >> text=Games")
        row = page.wait_for_selector("tr:has-text('a person')")
        assert result.rstrip(".") in row.inner_text()
        is_live(page)
        is_sound(page, WIDE[0])
        with page.expect_download() as download:
            page.click("tr >> text=Download")
        (kept,) = (folder / "games").iterdir()
        assert download.value.suggested_filename == kept.name
        assert download.value.path().read_bytes() == kept.read_bytes()


def test_game_is_played_by_keyboard_alone(browser, url):
    with signed_in(browser, url) as page:
        begin(page, KEY, seat="0", seed="3")
        page.focus("#spot-row-2-column-2")
        page.keyboard.press("ArrowUp")
        assert page.evaluate("document.activeElement.id") == "spot-row-1-column-2"
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Enter")
        page.wait_for_selector(".board .nought")
        page.wait_for_selector("#play .spot:focus")
        assert len(page.query_selector_all("#play .spot")) == 7
        page.keyboard.press("Space")
        page.wait_for_function("() => document.querySelectorAll('.board .nought').length === 2")


def test_picked_piece_stays_while_an_opinion_is_awaited(browser, url, monkeypatch):
    """A piece that is picked while the page asks for the opinion is picked, whichever answer comes first."""
    games: list[PlayedGame] = []
    add = PlayedGames.add
    monkeypatch.setattr(PlayedGames, "add", lambda self, game: games.append(game) or add(self, game))
    with signed_in(browser, url) as page:
        begin(page, "breakthrough6_2p", seat="0", seed="1")
        games[0].opinion = PageJob("key", "think", {})
        page.reload()
        page.wait_for_selector("text=It thinks about your position")
        held: dict[str, Any] = {}

        def hold(route: Any) -> None:
            what = "pick" if "?pick=" in route.request.url else "look"
            if held.setdefault(what, route) is not route:
                route.continue_()

        page.route(re.compile(r"/games/play/[^/]+$"), hold)
        for what, begins in (("look", lambda: None), ("pick", lambda: page.click("#play a.spot >> nth=0"))):
            begins()
            while what not in held:
                page.wait_for_timeout(20)
        for route in held.values():
            route.continue_()
            page.wait_for_timeout(300)
        page.wait_for_selector("#play .picked")
        for _ in range(2):
            with page.expect_response(lambda answer: "?pick=" in answer.url):
                pass
            assert page.query_selector("#play .picked")
        games[0].opinion.result = Opinion(player="random", value=0.25, top=((3, 1.0),)).model_dump(mode="json")
        page.wait_for_selector("text=What it thinks of your position")
        assert page.query_selector("#play .picked")
        page.click("#play button.spot >> nth=0")
        page.wait_for_selector("text=Pick a piece.")


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["wide", "phone"])
def test_pages_of_a_game_are_accessible(browser, url, size, scheme):
    with signed_in(browser, url, size, scheme) as page:
        is_sound(page, size[0])
        begin(page, HEARTS, seat="0", seed="1")
        is_sound(page, size[0])
        page.goto(f"{url}/games")
        begin(page, "breakthrough6_2p", seat="0", seed="1")
        page.click("#play .spot >> nth=0")
        page.wait_for_selector("#play .picked:focus")
        assert page.query_selector("#play button.spot")
        is_sound(page, size[0])
        page.keyboard.press("Space")
        page.wait_for_selector("#play:not(:has(.picked))")


def test_restarted_dashboard_says_that_the_game_is_lost(browser, tmp_path):
    write_journal(tmp_path / "journal.sqlite", recording().events)
    with served(tmp_path, TOKEN) as url:
        port = int(url.rpartition(":")[2])
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{url}/sign-in?to=/games")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("#play-form button")
        begin(page, KEY, seat="0", seed="1")
    with served(tmp_path, TOKEN, port):
        page.click("#play .spot >> nth=0")
        page.wait_for_selector("text=/dashboard was started again/")
        assert page.query_selector("#play .spot") is None
        context.close()
