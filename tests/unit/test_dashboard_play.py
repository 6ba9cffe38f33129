"""A person's games on the dashboard, asked as a browser asks."""

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from dashboards import TOKEN, dashboard_of
from generated_run import write_generated
from golden_runs import load
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from played_games import BEARER, after_on, begun, files_of, move, moves_on, play_on, settled
from profiles import examples
from selfplay_rig import CONFIG, put_model
from starlette.testclient import TestClient

from flyball.app.api.kept_games import KeptGame
from flyball.app.api.playing import PERSON, Opinion
from flyball.app.config import GAMES, RunFolder
from flyball.app.core import ConfigKey
from flyball.app.dashboard import playing
from flyball.app.dashboard.jobs import PageJob
from flyball.app.dashboard.pages import play
from flyball.app.games.hearts.cards import CARDS
from flyball.app.games.positions import card_name, spectator_of
from flyball.app.games.session import GameSession

KEY, MODELS, HEARTS = "tic_tac_toe_2p", str(CONFIG.key), ConfigKey("hearts_4p")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    write_generated(folder.journal, load("generated"))
    put_model(folder.path / "store")
    folder.settings.write_text(f'[games.{MODELS}]\nbackend = "policy_gradient"\nnetwork.kind = "mlp"\n')
    return folder.path


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    with TestClient(dashboard_of(folder, TOKEN)) as client:
        yield client


def alert(text: str) -> str:
    return " ".join(re.findall(r'role="alert">([^<]+)', unescape(text)))


def marks_of(text: str) -> tuple[str, str]:
    """Return where the crosses and noughts of tic-tac-toe are, as the drawing says."""
    return re.findall(r"<desc[^>]*>X: (.*?)\. O: (.*?)\.</desc>", text)[0]


def test_nothing_is_played_without_the_token(folder, client):
    address = begun(client, KEY)
    origin = {"origin": "http://testserver"}
    before = files_of(folder)
    form = {"config": KEY, "against": "random", "seat": "0", "seed": "1"}
    assert client.post("/games/play", data=form, headers=origin).status_code == 403
    for what in ("move", "think", "keep", "again"):
        answer = client.post(f"{address}/{what}", data={"action": "0", "after": "0"}, headers=origin)
        assert answer.status_code == 403
        assert "needs the token" in answer.text
    assert files_of(folder) == before
    text = client.get(address).text
    assert moves_on(text) == []
    assert "sign in" in text
    assert 'action="/games/play"' not in client.get("/games").text
    assert 'action="/games/play"' in client.get("/games", headers=BEARER).text
    assert len(moves_on(settled(client, address))) == 9


def test_game_is_played_kept_found_and_opened_again(folder, client):
    before = files_of(folder)
    address = begun(client, KEY, seat="0")
    assert "<dd>you</dd>" in settled(client, address)
    early = client.post(f"{address}/keep", headers=BEARER)
    assert early.status_code == 409
    assert "not over yet" in alert(early.text)
    text = play_on(client, address)
    result = re.search(r"<strong>(X wins|O wins|Drawn)\.</strong>", text)[1]
    assert files_of(folder) == before, "a game is written once it is kept, not before"
    client.post(f"{address}/keep", headers=BEARER)
    client.post(f"{address}/keep", headers=BEARER)
    (written,) = files_of(folder).keys() - before.keys()
    assert {name: data for name, data in files_of(folder).items() if name != written} == before
    name = Path(written).stem
    listed = unescape(client.get("/games").text)
    assert all(part in listed for part in (f"/games/kept/{name}", "X: a person, O: random", result))
    shown = client.get(f"/games/kept/{name}?ply=99").text
    assert f"{result}." in unescape(shown)
    assert marks_of(shown) == marks_of(text)
    first = client.get(f"/games/kept/{name}/part?ply=1").text
    assert "Move 1 of" in first
    assert "at random" not in first, "a person's moves are no random opening"
    download = client.get(f"/games/kept/{name}/file")
    assert download.headers["content-disposition"] == f'attachment; filename="{name}.json"'
    game = KeptGame.model_validate_json(download.content)
    again = GameSession(GAMES[ConfigKey(KEY)], game.seed, game.actions).standing()
    assert (again.history, again.returns) == (game.history, game.returns)


@pytest.mark.parametrize(
    ("field", "change", "said"),
    [("players", lambda players: players[:1], "names 1 players"), ("history", lambda plies: plies[::-1], "is damaged")],
)
def test_damaged_kept_game_is_refused_alone(folder, client, field, change, said):
    address = begun(client, KEY, seat="0")
    play_on(client, address)
    client.post(f"{address}/keep", headers=BEARER)
    file = max((folder / "games").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    game = json.loads(file.read_text())
    file.write_text(json.dumps(game | {field: change(game[field])}))
    answer = client.get(f"/games/kept/{file.stem}")
    assert answer.status_code == 400
    assert said in unescape(answer.text)
    assert client.get("/games").status_code == 200
    file.unlink()
    assert client.get(f"/games/kept/{file.stem}").status_code == 404


def test_bad_moves_are_refused_and_nothing_is_lost(client):
    address = begun(client, KEY)
    text = settled(client, address)
    assert move(client, address, 4, after_on(text)).status_code == 200
    text = settled(client, address)
    legal, after = moves_on(text), after_on(text)
    for action, seen, said in (
        (4, after, "not legal"),
        (99, after, "not legal"),
        (legal[0], "0", "gone on"),
        ("x", after, "no number"),
        (legal[0], "", "no number"),
        (-1, after, "no number"),
    ):
        answer = move(client, address, action, seen)
        assert answer.status_code == 409
        assert said in alert(answer.text)
        assert "No move was played" in alert(answer.text)
        assert moves_on(unescape(answer.text)) == legal
    part = client.post(f"{address}/move", data={"action": "4", "after": after}, headers=BEARER | {"hx-request": "true"})
    assert (part.status_code, "<html" in part.text) == (200, False), "htmx shows no answer with an error's status"
    assert "not legal" in alert(part.text)
    assert client.post(f"{address}/dance", headers=BEARER).status_code == 409
    assert after_on(settled(client, address)) == after


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"config": "nonsense"}, "nonsense"),
        ({"config": "oh_hell_3p"}, "not drawn"),
        ({"config": "connect_four_text_2p"}, "language models"),
        ({"config": KEY, "against": "/etc/passwd"}, "There is no player"),
        ({"config": KEY, "against": "current+99999"}, "2 to 4096 positions"),
        ({"config": KEY, "against": "random", "seat": "2"}, "seats of tic_tac_toe_2p are 0 to 1"),
        ({"config": KEY, "against": "random", "seat": "0,1"}, "the opponent needs one"),
        ({"config": KEY, "against": "random", "seat": "x"}, "seats of"),
        ({"config": KEY, "against": "random", "seed": "-1"}, "seed"),
        ({"config": KEY, "against": "random", "seed": "many"}, "seed"),
    ],
)
def test_bad_forms_are_refused_and_keep_their_fields(client, fields, said):
    form = {"seat": "0", "seed": "4", "against": "random", **fields}
    response = client.post("/games/play", data=form, headers=BEARER, follow_redirects=False)
    assert response.status_code == 400
    assert said in alert(response.text)
    own = unescape(response.text).partition('id="play-form"')[2]
    assert f'value="{form["against"]}"' in own
    assert f'value="{form["seat"]}"' in own


@pytest.mark.parametrize("player", ["current", "abcdef0123"])
def test_missing_model_is_named_where_the_game_begins(client, player):
    """The recorded run has no models, so that its current one is missing, too."""
    text = settled(client, begun(client, KEY, player))
    assert "your opponent: there is nothing called" in alert(text)
    assert "Try again" in text
    assert moves_on(text) == []


def test_gone_game_says_why_and_what_to_do(folder, client, monkeypatch):
    address = begun(client, KEY)
    for gone in ("/games/play/0123456789abcdef", "/games/play/x"):
        answer = client.get(gone)
        assert answer.status_code == 404
        assert "started again" in alert(answer.text)
        assert "Start another" in answer.text
        assert move(client, gone, 0, 0).status_code == 404
    monkeypatch.setattr(playing, "MOST_GAMES", 5)
    all_kept = [address, *(begun(client, KEY) for _ in range(4))]
    assert all(client.get(one).status_code == 200 for one in all_kept)
    monkeypatch.setattr(playing, "MOST_GAMES", 2)
    others = [begun(client, KEY) for _ in range(2)]
    assert client.get(address).status_code == 404
    assert all(client.get(other).status_code == 200 for other in others)
    monkeypatch.setattr(playing, "LEFT_SECONDS", -1.0)
    begun(client, KEY)
    assert all(client.get(other).status_code == 404 for other in others)
    with TestClient(dashboard_of(folder, TOKEN)) as restarted:
        assert restarted.get(address).status_code == 404


def hidden_from(session: GameSession, seat: int) -> set[str]:
    """Return the cards that a seat of Hearts has not seen: those in the others' hands that it did not pass."""
    position = spectator_of(session.config).position(session.standing().history)
    others = {card for other, hand in enumerate(position.hands) if other != seat for card in hand}
    passing = position.passing != "nobody" and sum(map(len, position.passed)) < 12
    given = (
        {card for other, cards in enumerate(position.passed) if other != seat for card in cards} if passing else set()
    )
    return {card_name(card) for card in (others | given) - set(position.passed[seat])}


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_page_of_hearts_names_no_hidden_card(client, seed):
    address = begun(client, HEARTS, seed=seed, seat="2")
    game = client.app.state.played.find(address.rpartition("/")[2])
    rng, pages = np.random.default_rng(int(seed)), 0
    while actions := moves_on(text := settled(client, address)):
        hidden = hidden_from(game.session, 2)
        answer = move(client, address, rng.choice(actions), after_on(text))
        assert answer.status_code == 200
        assert not {card for card in hidden if re.search(rf"(?<!\d){card}", text)}
        position = spectator_of(game.session.config).position(game.session.standing().history)
        shown = len(position.hands[2]) + len(position.trick)
        drawn = len(re.findall(r'class="card-(?:red|black)"', settled(client, address)))
        assert drawn == 3 * shown, "rank, suit and pip of the own cards and the trick, and of no others"
        pages += 1
    assert pages > 5
    assert re.search(r"Seat \d( and Seat \d)* wins? \(", text)
    assert len({card_name(card) for card in range(CARDS)}) == CARDS


def test_model_gives_its_opinion_with_and_without_a_search(folder, client):
    (model,) = [name for name in files_of(folder) if re.search(r"[0-9a-f]{64}$", name)]
    model = Path(model).name
    address = begun(client, MODELS, f"{model[:10]}+16")
    client.post(f"{address}/think", headers=BEARER)
    text = settled(client, address)
    assert "its search of 16 positions" in text
    visits = [int(number) for number in re.findall(r'column \d</td><td class="n">(\d+)</td>', text)]
    assert visits == sorted(visits, reverse=True)
    assert 0 < sum(visits) <= 16
    shares = [float(share) for share in re.findall(r'column \d</td><td class="n">([\d.]+)%</td>', text)]
    assert len(shares) == 5
    assert shares == sorted(shares, reverse=True)
    assert move(client, address, moves_on(text)[0], after_on(text)).status_code == 200
    assert "What it thinks" not in settled(client, address), "an opinion is about one position"
    address = begun(client, MODELS, model[:10])
    client.post(f"{address}/think", headers=BEARER)
    assert "its search of 64 positions" in settled(client, address)
    text = play_on(client, address)
    client.post(f"{address}/keep", headers=BEARER)
    name = re.search(r"/games/kept/([^\"]+)", client.get(address, headers=BEARER).text)[1]
    assert "decides" in client.get(f"/games/kept/{name}?ply=1").text, "the model's decisions are kept"
    assert "A bot has no opinion" in settled(client, begun(client, KEY))
    refused = client.post(f"{address}/think", headers=BEARER)
    assert refused.status_code == 409
    assert "not your turn" in alert(refused.text)


def test_kept_games_that_cannot_be_shown_say_why(folder, client):
    address = begun(client, KEY)
    play_on(client, address)
    client.post(f"{address}/keep", headers=BEARER)
    name = re.search(r"/games/kept/([^\"]+)", client.get(address, headers=BEARER).text)[1]
    file = folder / "games" / f"{name}.json"
    whole = file.read_text()
    for text, said in (
        (whole[:50], "holds no game"),
        (whole.replace("flyball-", "other-"), "played by the rules other-"),
    ):
        file.write_text(text)
        answer = client.get(f"/games/kept/{name}")
        assert answer.status_code == 400
        assert said in alert(answer.text)
        assert client.get("/games").status_code == 200
    for other in ("..%2fflyball", "x", f"{name}.json", name.replace("tic", "tac")):
        for path in (f"/games/kept/{other}", f"/games/kept/{other}/file"):
            assert client.get(path).status_code in (400, 404)
    file.unlink()


@pytest.fixture
def open_game(client: TestClient) -> str:
    return begun(client, KEY)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    form=st.dictionaries(st.sampled_from(["config", "against", "seat", "seed", "action", "after"]), st.text()),
    pick=st.text(),
    what=st.sampled_from(["move", "think", "keep", "again"]),
)
def test_any_form_is_answered_and_moves_nothing(client, open_game, form, pick, what):
    address = open_game
    if form.get("after", "").strip() != "0":
        assert client.post(f"{address}/{what}", data=form, headers=BEARER).status_code in (200, 409)
    assert client.post("/games/play", data=form, headers=BEARER).status_code in (200, 400)
    assert client.get(address, params={"pick": pick}, headers=BEARER).status_code == 200
    assert len(moves_on(settled(client, address))) == 9


def test_no_page_of_a_game_has_inline_styles_or_scripts(client):
    address = begun(client, KEY)
    for page in (address, "/games"):
        text = client.get(page, headers=BEARER).text
        assert not re.search(r" style=|<style|<script(?![^>]*src=)", text)


def test_opinion_keeps_the_picked_piece_while_it_is_awaited(client, monkeypatch):
    address = begun(client, "breakthrough6_2p", "random")
    game = client.app.state.played.find(address.rpartition("/")[2])
    game.spec = game.spec.replace(players=(PERSON, "a" * 64))  # a model, which can be asked

    async def thinking(_, asked, seconds) -> None:
        asked.opinion = PageJob("key", "think", {})

    monkeypatch.setattr(playing.PlayedGames, "think", thinking)
    (pick, *_) = re.findall(rf'hx-get="{address}(\?pick=[^"]+)"', client.get(address, headers=BEARER).text)
    text = client.get(address + pick, headers=BEARER).text
    (ask,) = re.findall(rf'action="({address}/think[^"]*)"', text)
    for headers in (BEARER, BEARER | {"hx-request": "true"}):
        text = client.post(ask, headers=headers).text
        assert "is picked" in text
        (poll,) = re.findall(r'hx-get="([^"]+)" hx-trigger="load delay', text)
        assert "is picked" in client.get(poll, headers=BEARER).text


def test_opinion_that_ends_while_a_page_is_made_is_not_missed(client, monkeypatch):
    """The page either shows the opinion or asks again, even if the job ends between its parts."""
    address = begun(client, MODELS, "random")
    game = client.app.state.played.find(address.rpartition("/")[2])
    game.opinion = PageJob("key", "think", {})
    result = Opinion(player="random", value=0.25, top=((3, 1.0),)).model_dump(mode="json")
    made = play.play_view

    def late(*args):
        game.opinion.result = result
        return made(*args)

    monkeypatch.setattr(play, "play_view", late)
    assert "delay:500ms" in client.get(address, headers=BEARER).text
    assert "expects <strong>+0.25</strong>" in settled(client, address)
