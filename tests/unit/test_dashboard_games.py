"""The pages Games and What-if, asked as a browser asks."""

import re
import time
from collections.abc import Iterator
from html import unescape

import numpy as np
import pytest
from board_games import SLOT
from dashboards import dashboard_of
from generated_run import write_generated
from golden_runs import load
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import examples
from starlette.testclient import TestClient

from flyball.app.api.watching import Decision
from flyball.app.config import GAMES
from flyball.app.dashboard.watched import Record, view_of
from flyball.app.games import open_table
from flyball.app.games.positions import spectator_of

KEY = "tic_tac_toe_2p"
GAME = f"/games?config={KEY}&player=random&against=random&seat=0&seed=3"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("run")
    write_generated(folder / "journal.sqlite", load("generated"))
    with TestClient(dashboard_of(folder)) as client:
        yield client


def job_of(text: str) -> str:
    found = re.search(r"job=([0-9a-f]{16})", text)
    assert found is not None, text
    return found[1]


def what_if(client: TestClient, setting: str) -> str:
    page = client.get(f"/what-if?set={setting}").text
    refreshes = "delay:1s" in page  # otherwise the job was over before its page was
    return finished(client, f"/what-if/part?job={job_of(page)}") if refreshes else unescape(page)


def finished(client: TestClient, part: str) -> str:
    """Return a part of a page once it stops refreshing."""
    while "delay:1s" in (text := client.get(part).text):
        time.sleep(0.2)
    return unescape(text)


@pytest.fixture(scope="module")
def game(client: TestClient) -> str:
    """Return the address of the part that shows a finished game."""
    part = f"{GAME.replace('/games', '/games/part')}&job={job_of(client.get(GAME).text)}"
    finished(client, part)
    return part


def test_games_page_offers_configurations_and_plays_nothing(client):
    page = client.get("/games").text
    assert f"<option selected>{KEY}" in page or f"<option>{KEY}" in page
    assert not any(part in page for part in ("<svg", "job="))
    offered = client.get(f"/games/players?config={KEY}").text
    assert '<option value="current">' in offered
    assert '<option value="random">a bot' in offered
    assert client.get("/games/players?config=nonsense").text.strip() == ""


def test_game_is_shown_at_its_end_and_at_each_ply(client, game):
    text = unescape(client.get(game).text)
    last = int(re.search(r"Move (\d+) of \1\.", text)[1])
    assert re.search(r"(X wins|O wins|Drawn)", text)
    marks = []
    for ply in range(last + 1):
        text = client.get(f"{game}&ply={ply}").text
        assert f"Move {ply} of {last}." in text
        marks.append(text.count("nought") + text.count('class="cross"') // 2)
    assert marks == list(range(last + 1))
    for beyond in (99999, -3):
        assert f"Move {last} of {last}." in client.get(f"{game}&ply={beyond}").text
    text = unescape(client.get(f"{game}&ply=3").text)
    assert re.search(r"[XO] decides", text)
    assert text.count("<meter") == 5, "a decision has probabilities"
    assert "played" in text


def test_moves_of_the_opening_are_marked_as_random(client, game):
    """The opening is at the beginning: a forced move at the end of a game is nobody's decision, but not random."""
    text = unescape(client.get(game).text)
    opening = int(re.search(r"The opening is random, so that games differ: (\d+) moves?\.", text)[1])
    last = int(re.search(r"Move (\d+) of \1\.", text)[1])
    assert 0 < opening < last
    decided = []
    for ply in range(1, last + 1):
        move = re.search(r"<strong>(.*?)</strong>", unescape(client.get(f"{game}&ply={ply}").text))[1]
        decided.append(" decides</h2>" in client.get(f"{game}&ply={ply - 1}").text)
        assert move.endswith(", at random") == (ply <= opening)
    assert decided.index(True) == opening


def test_no_move_is_random_where_cards_make_games_differ():
    config = GAMES["oh_hell_3p"]
    table = open_table(config, 1)
    table.reset(SLOT, [1])
    legal = np.flatnonzero(table.observe(SLOT)[1][0])
    table.step(SLOT, legal[:1].astype(np.int32))
    after = table.history(0)
    decision = Decision(played=len(after), seat=1, action=0, value=None, top=())
    record = Record(tuple(spectator_of(config).plies(after)), tuple(after), {len(after): decision}, None)
    assert view_of(config, record, ("a", "b", "c"), None).opening == 0


def test_page_works_without_scripts(client, game):
    page = unescape(client.get(f"{GAME}&ply=2").text)
    assert "Move 2 of" in page
    link = re.search(r'id="game-next"[^>]* href="([^"]+)"', page)[1]
    assert "Move 3 of" in client.get(link).text


def test_parts_show_only_jobs_of_their_page(client, game):
    text = unescape(client.get(f"{GAME.replace('/games', '/games/part')}&job=0000").text)
    assert "no longer kept" in text
    assert f'href="{GAME}"' in text
    text = client.get("/games/part", params={"job": job_of(game), "config": "hearts_4p", "seat": "x", "ply": "1"}).text
    assert all(part in text for part in ("Move 1 of", "Tic-tac-toe"))
    assert "no longer kept" in client.get(f"/what-if/part?job={job_of(game)}").text
    answer = job_of(client.get("/what-if?set=seed=9").text)
    assert "no longer kept" in client.get(f"/games/part?job={answer}").text


@pytest.mark.parametrize("player", ["/etc/passwd", "../run", "flyball.toml", "normal", "abc", "random+64"])
def test_players_are_no_files(client, player):
    text = unescape(client.get("/games", params={"config": KEY, "player": player, "against": "random"}).text)
    assert f"There is no player '{player}' of {KEY}." in text
    assert "job=" not in text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"config": "nonsense"}, "nonsense"),
        ({"config": KEY, "player": "random", "seed": "-1"}, "seed"),
        ({"config": KEY, "player": "random", "seat": "x"}, "seat"),
    ],
)
def test_bad_queries_are_refused_on_the_page(client, query, expected):
    response = client.get("/games", params=query)
    assert response.status_code == 200
    alert = re.search(r'role="alert">([^<]+)', unescape(response.text))[1]
    assert expected in alert


def test_diplomacy_is_refused_with_the_reason(tmp_path):
    text = '[games.diplomacy_small_3p]\ngame = "diplomacy_small"\nplayers = 3\nbackend = "language"\n'
    (tmp_path / "flyball.toml").write_text(f'configs = ["diplomacy_small_3p"]\n{text}')
    with TestClient(dashboard_of(tmp_path)) as client:
        assert "diplomacy_small_3p</option>" in client.get("/games").text
        page = client.get("/games?config=diplomacy_small_3p&player=random")
        assert client.get("/games/players?config=diplomacy_small_3p").status_code == 200
    assert page.status_code == 200
    assert "Games of diplomacy_small_3p cannot be watched move by move" in unescape(page.text)
    assert "job=" not in page.text


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.dictionaries(
        st.sampled_from(["config", "player", "against", "seat", "ply", "job", "set", "to"]), st.text()
    )
)
def test_any_query_is_answered(client, query):
    for path in (
        "/games",
        "/games/part",
        "/games/stop",
        "/games/players",
        "/what-if",
        "/what-if/part",
        "/what-if/stop",
    ):
        assert client.get(path, params=query).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    ["feedback.stall.velocity", "velocity=3", "profile=full", "feedback.stall.velocty=3", "deployment.node=x"],
)
def test_what_if_refuses_unknown_settings_and_names_no_option(client, wrong):
    page = client.get("/what-if", params={"set": wrong}).text
    (alert,) = re.findall(r'role="alert">([^<]+)', page)
    assert wrong.partition("=")[0] in alert
    assert "--set" not in alert
    assert "job=" not in page


def test_other_sites_begin_no_game(client):
    for address in (GAME.replace("seed=3", "seed=77"), "/what-if?set=seed=1"):
        assert "job=" not in client.get(address, headers={"sec-fetch-site": "cross-site"}).text


def test_what_if_lists_the_decisions_that_differ(client):
    page = client.get("/what-if?set=feedback.stall.boost=2.0")
    assert "to=" in str(page.url)  # the position up to which the journal is compared
    text = finished(client, f"/what-if/part?job={job_of(page.text)}")
    assert all(part in text for part in ("conclusions differ", "temperature x 1.5"))
    assert re.search(r"changed</span>: \d+ EXPLORATION_BOOST", text)
    (first, *_) = re.findall(r'href="/event\?id=([^"]+)"', text)
    assert client.get(f"/event?id={first}").status_code == 200


def test_what_if_links_added_decisions_to_their_cause(client):
    rows = re.findall(
        r'<td class="change added">added</td><td>([A-Z_]+)</td>.*?before=(\d+)">([\d,]+)</a>',
        what_if(client, "feedback.stall.velocity=1e6"),
        re.DOTALL,
    )
    assert rows
    assert all(int(before) == int(cause.replace(",", "")) + 1 for _, before, cause in rows)


def test_what_if_offers_the_settings_of_the_controllers(client):
    page = unescape(client.get("/what-if").text)
    assert all(f'<option value="{name}=' in page for name in ("feedback.stall.velocity", "min_quality"))
    assert "job=" not in page


@pytest.mark.parametrize(("setting", "said"), [("seed=0", "Nothing differs"), ("feedback.stall.boost=0.5", "boost")])
def test_what_if_says_when_nothing_differs_or_is_possible(client, setting, said):
    assert said in what_if(client, setting)


def test_a_comparison_can_be_stopped(client):
    page = client.get("/what-if?set=feedback.stall.velocity=2.5")
    assert "It was stopped." in client.get(f"/what-if/stop?job={job_of(page.text)}").text


def test_no_page_has_inline_styles_or_scripts(client: TestClient, game: str):
    for path in ("boards.css", "games.css", "games.js"):
        assert client.get(f"/static/{path}").status_code == 200
    for address in ("/games", GAME, game, "/what-if", "/what-if?set=seed=0"):
        assert not re.search(r" style=|<style|<script(?![^>]*src=)", client.get(address).text)
