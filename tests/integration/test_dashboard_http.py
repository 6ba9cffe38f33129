"""The dashboard over HTTP: pages, the stream of events, and refusals."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from dashboards import LOCAL, TOKEN, append, caught_up, dashboard_of, served
from recorded_run import KEY, record, recording, write_journal
from running_loop import FLYBALL
from starlette.testclient import TestClient

from flyball.app.api.runs import locate_run
from flyball.app.cli.up import open_dashboard
from flyball.app.config import RunSettings
from flyball.app.config.dashboard import DashboardSettings
from flyball.app.core import FlyballError
from flyball.app.dashboard.access import Access, AddressTaken, BadToken, listen, read_token
from flyball.app.dashboard.feed import Feed
from flyball.app.dashboard.server import serve
from flyball.app.dashboard.stream import message
from flyball.app.events import CurriculumRebalanced, RunConfigured
from flyball.app.journal import SqliteJournal, history
from flyball.app.telemetry.logs import render

EVENTS = recording().events
PROMOTED = next(event for event in EVENTS if event.data.event_name == "MODEL_PROMOTED")
PAGES = (
    "/",
    f"/configuration/{KEY}",
    f"/controllers/{KEY}",
    "/report",
    "/events",
    f"/league/{KEY}",
    f"/training/{KEY}",
    "/logs",
    "/docs",
    "/sign-in",
)
PARTS = (
    "/overview/summary",
    "/overview/daemons",
    "/overview/notable",
    f"/overview/card/{KEY}",
    f"/curves/ratings/{KEY}",
    f"/configuration/{KEY}/state",
    f"/why?id={PROMOTED.id}",
    f"/event?id={PROMOTED.id}",
    f"/controllers/{KEY}/reports",
    f"/league/{KEY}/tables",
    f"/curves/metrics/{KEY}",
    "/curves/shares",
    "/report?since=4",
    "/logs/lines",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_journal(folder / "journal.sqlite", EVENTS)
    return folder


@pytest.fixture(scope="module")
def reader(run: Path) -> Iterator[TestClient]:
    """Return a client of a read-only dashboard."""
    with TestClient(dashboard_of(run), follow_redirects=False) as client:
        yield caught_up(client, len(EVENTS))


@pytest.fixture(scope="module")
def actor(run: Path) -> Iterator[TestClient]:
    """Return a client, without the token, of a dashboard that has one."""
    with TestClient(dashboard_of(run, TOKEN), follow_redirects=False) as client:
        yield caught_up(client, len(EVENTS))


@pytest.mark.parametrize("path", PAGES + PARTS)
def test_page_comes_with_a_strict_policy(reader, path):
    answer = reader.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?! src=)|<style| style=| on\w+=", answer.text)
    assert not re.search(r"(src|href|action)=\"(?!/|#|\")", answer.text)


def test_overview_and_state_show_a_plateau(tmp_path):
    run = recording()
    run.add(CurriculumRebalanced(weights={KEY: 0.2}, plateaued=(KEY,), reason="r"))
    write_journal(tmp_path / "journal.sqlite", run.events)
    with TestClient(dashboard_of(tmp_path)) as client:
        while client.app.state.feed.model.position < len(run.events):
            time.sleep(0.01)
        assert re.search(r'class="chip warn"[^>]*>plateaued<', client.get(f"/overview/card/{KEY}").text)
        row = re.search(r'<th scope="row">plateaued.*?</tr>', client.get(f"/configuration/{KEY}").text, re.DOTALL)
    assert row
    assert "True" in row[0]


def test_pages_show_the_configuration_values_and_events(reader):
    text = reader.get(f"/overview/card/{KEY}").text
    assert "+5</strong>" in text  # the champion's rating, not that of the refused model
    assert "PROMOTION_REJECTED" in text
    text = reader.get(f"/configuration/{KEY}").text
    row = re.search(r"<th scope=\"row\">current_<wbr>model.*?</tr>", text, re.DOTALL)
    assert row
    assert PROMOTED.id in row[0]
    why = reader.get(f"/why?id={PROMOTED.id}").text
    names = [event.data.event_name for event in EVENTS]
    chain = re.findall(r">([A-Z_]{6,})</a>", why)
    assert chain == [names[7], names[6], names[5], names[4], names[3], names[0]]
    text = reader.get(f"/event?id={PROMOTED.id}").text
    assert "SELFPLAY_REQUESTED" in text
    assert "EVALUATION_COMPLETED" in text
    assert "/logs?event_id=" in text


def test_overview_shows_why_the_broker_gives_no_table(reader, monkeypatch):
    feed = reader.app.state.feed
    broker = SimpleNamespace(
        look=feed.broker.look, status=feed.broker.status, running=True, trouble="The broker does not answer."
    )
    monkeypatch.setattr(feed, "broker", broker)
    assert "The broker does not answer." in reader.get("/overview/summary").text


def test_events_are_filtered_by_type_kind_and_configuration(reader):
    def shown(query: str) -> list[int]:
        return [int(one) for one in re.findall(r'<tr data-position="(\d+)"', reader.get(f"/events?{query}").text)]

    assert shown("") == list(range(16, 0, -1))
    assert shown("pattern=MODEL_*") == [8]
    assert shown("kind=decision") == [15, 8]
    assert shown(f"config={KEY}&kind=request") == [11, 9, 6, 4]
    assert shown("before=4") == [3, 2, 1]


def test_unknown_types_and_stream_positions_are_explained(reader):
    answer = reader.get("/events?pattern=NOTHING_SUCH")
    assert answer.status_code == 200
    assert "NOTHING_SUCH" in answer.text
    assert 'role="alert"' in answer.text
    assert reader.get("/live?after=0&rows=1&pattern=NOTHING_SUCH").status_code == 400
    for query in ("", "?after=-1", "?after=x", f"?after={'9' * 30}"):
        assert reader.get(f"/live{query}").status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        *("/nothing", "/event?id=nothing", "/actions/x/promote"),
        *(f"/{page}/chess_2p" for page in ("configuration", "controllers", "league", "training")),
    ],
)
def test_unknown_page_is_an_error_page(reader, path):
    assert reader.get(path).status_code in {404, 405}


def test_logs_are_filtered_and_lead_to_their_events(reader, run):
    lines = [
        {"timestamp": "2026-01-31T12:00:01Z", "severity_text": "INFO", "body": "MODEL_PROMOTED",
         "attributes": {"daemon": "model_lifecycle", "node": "laptop", "event_id": PROMOTED.id}},
        {"timestamp": "2026-01-31T12:00:02Z", "severity_text": "ERROR", "body": "<b>job failed</b>", "attributes": {}},
    ]  # fmt: skip
    (run / "logs").mkdir(exist_ok=True)
    text = "\n".join(["cut off {", *map(json.dumps, lines), "[]", '{"half'])
    (run / "logs" / "model_lifecycle.jsonl").write_text(text)
    everything = reader.get("/logs").text
    assert f"/event?id={PROMOTED.id}" in everything
    assert "&lt;b&gt;job failed" in everything
    assert "MODEL_PROMOTED" not in reader.get("/logs/lines?level=ERROR").text
    assert "job failed" not in reader.get(f"/logs/lines?event_id={PROMOTED.id[:10]}").text
    assert "No line fits" in reader.get("/logs/lines?daemon=broker").text


@pytest.mark.parametrize("path", ["/", "/live?after=0", "/static/flyball.js", "/sign-in"])
@pytest.mark.parametrize(
    "host",
    [
        "flyball.example",
        "127.0.0.1.flyball.example",
        "",
        "[::1",
        "localhost@evil.example",
        "evil@localhost",
        "localhost:80,evil.example",
    ],
)
def test_foreign_host_is_refused(reader, path, host):
    assert reader.get(path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://testserver.evil.example", "http://[::1"])
def test_foreign_origin_is_refused(actor, origin):
    token = {"authorization": f"Bearer {TOKEN}"}
    for method, path in (("GET", "/"), ("POST", f"/actions/{KEY}/block"), ("POST", "/sign-in")):
        answer = actor.request(method, path, headers=token | {"origin": origin}, data={"reason": "why"})
        assert answer.status_code == 403, (method, path)


def test_nothing_is_written_without_the_token(actor, reader):
    own = {"origin": "http://testserver"}
    actor.cookies.set("flyball_testserver", actor.app.state.access.session)
    try:
        assert actor.post(f"/actions/{KEY}/block", data={"reason": "why"}).status_code == 403, "a cookie, no origin"
    finally:
        actor.cookies.clear()
    for client in (actor, reader):
        for path in (f"/actions/{KEY}/block", "/actions/confirm", "/sign-out"):
            assert client.post(path, headers=own, data={"reason": "why"}).status_code == 403
    wrong = own | {"authorization": "Bearer another token than ours"}
    assert actor.post(f"/actions/{KEY}/block", headers=wrong, data={"reason": "why"}).status_code == 403
    assert not actor.app.state.pending


def test_signing_in_needs_the_token_and_stays_on_this_site(actor):
    own = {"origin": "http://testserver"}
    assert actor.post("/sign-in", headers=own, data={"token": "wrong"}).status_code == 403
    answer = actor.post("/sign-in", headers=own, data={"token": TOKEN, "to": "//evil.example/"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert "Sign out" in actor.get("/").text
    actor.cookies.clear()


def test_action_shows_its_event_and_needs_a_reason(actor):
    token = {"authorization": f"Bearer {TOKEN}"}
    page = actor.post(f"/actions/{KEY}/block", headers=token, data={"reason": "odd <games>"})
    assert page.status_code == 200
    assert "TRAINING_BLOCKED_BY_QUALITY" in page.text
    assert "odd &lt;games&gt;" in page.text
    assert actor.post(f"/actions/{KEY}/block", headers=token, data={"reason": " "}).status_code == 400
    assert (
        actor.post(f"/actions/{KEY}/boost", headers=token, data={"reason": "x", "multiplier": "nan"}).status_code == 400
    )
    assert actor.post(f"/actions/{KEY}/unblock", headers=token, data={"reason": "x"}).status_code == 400
    assert actor.post("/actions/confirm", headers=token, data={"event_id": "unknown"}).status_code == 400


def test_private_dashboard_shows_nothing_without_the_token(run):
    with TestClient(dashboard_of(run, TOKEN, private=True), follow_redirects=False) as client:
        assert client.get("/", headers={"accept": "text/html"}).headers["location"].startswith("/sign-in")
        for path in ("/live?after=0", "/logs/lines", f"/curves/ratings/{KEY}", "/event?id=x"):
            assert client.get(path).status_code == 403
        shown = caught_up(client, len(EVENTS)).get("/", headers={"authorization": f"Bearer {TOKEN}"})
        assert (shown.status_code, f"· {run.name} ·" in shown.text) == (200, True)
        page = client.get("/sign-in").text
        assert run.name not in page
        assert 'data-position="0"' in page


def test_public_address_needs_a_token():
    with pytest.raises(ValueError, match=r"set dashboard\.token"):
        DashboardSettings(address="0.0.0.0")
    with pytest.raises(ValueError, match=r"set dashboard\.token"):
        DashboardSettings(names=("flyball.example",))
    with pytest.raises(ValueError, match="no IP address"):
        DashboardSettings(address="localhost")


@pytest.mark.parametrize(("mode", "text"), [(0o644, TOKEN), (0o600, "short"), (0o600, ""), (0o600, "x" * 20 + "é")])
def test_unsafe_token_is_refused(tmp_path, mode, text):
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(BadToken):
        read_token(file)
    with pytest.raises(FlyballError):
        read_token(tmp_path / "missing")


class Message(NamedTuple):
    id: int
    event: str
    data: str

    @property
    def rows(self) -> list[int]:
        return [int(one) for one in re.findall(r'<tr data-position="(\d+)"', self.data)]


def streamed(url: str, path: str, last: int | None = None, quiet_seconds: float = 3.0) -> list[Message]:
    """Read a stream until it is quiet; return its messages."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=quiet_seconds)
    connection.request("GET", path, headers={} if last is None else {"Last-Event-ID": str(last)})
    found, fields = [], dict[str, str]()
    with suppress(TimeoutError), closing(connection), connection.getresponse() as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        while line := answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if name == "data":
                fields["data"] = fields.get("data", "") + value + "\n"
            elif name:
                fields[name] = value
            elif fields:
                found.append(Message(int(fields.get("id", 0)), fields.get("event", ""), fields.get("data", "")))
                fields = {}
    return [message for message in found if message.event]


def test_reconnect_misses_nothing_and_repeats_nothing(tmp_path):
    write_journal(tmp_path / "journal.sqlite", EVENTS[:8])
    with served(tmp_path) as url:
        first = streamed(url, "/live?after=3&rows=1")
        assert [row for message in first for row in message.rows] == [4, 5, 6, 7, 8]
        assert first[-1].event == "news"
        assert json.loads(first[-1].data)["configs"] == [KEY]
        append(tmp_path, EVENTS[8:12])
        again = streamed(url, "/live?after=3&rows=1", last=first[-1].id)
        assert [row for message in again for row in message.rows] == [9, 10, 11, 12]
    append(tmp_path, EVENTS[12:16])
    with served(tmp_path) as url:  # the server's restart keeps no state of clients
        last = streamed(url, "/live?after=3&rows=1", last=again[-1].id)
        assert [row for message in last for row in message.rows] == [13, 14, 15, 16]
        assert {message.id for message in last} == {16}
        assert streamed(url, "/live?after=0&rows=1", last=last[-1].id) == []


def test_stream_sends_chosen_rows_and_is_reset_for_another_run(run):
    with served(run) as url:
        found = streamed(url, f"/live?after=0&rows=1&kind=decision&config={KEY}")
        assert [one.event for one in streamed(url, "/live?after=0", last=1000)] == ["reset"]
    assert [row for message in found for row in message.rows] == [8, 15]
    assert found[-1].id == 16


def test_taken_port_is_a_clear_error_and_up_goes_on_without():
    with listen(DashboardSettings(port=0)) as first:
        taken = DashboardSettings(port=first.getsockname()[1])
        with pytest.raises(AddressTaken, match="cannot listen"):
            listen(taken)
        shown, server = open_dashboard(taken, None)
    assert server is None
    assert shown.startswith("No dashboard: ")
    assert "deployment.dashboard.port" in shown
    assert open_dashboard(DashboardSettings(port=0), "worker") == ("", None)
    assert open_dashboard(DashboardSettings(port=0, start=False), None) == ("", None)
    shown, server = open_dashboard(DashboardSettings(port=0), "head")
    assert server is not None
    server.close()
    assert shown.startswith("Dashboard: http://127.0.0.1:")


def test_foreign_cookies_do_not_end_a_session():
    access = Access(LOCAL, TOKEN, private=False)
    cookies = f'prefs={{"a": [1]}}; flyball_8417={access.session}'
    assert access.admits({"host": "localhost:8417", "cookie": cookies})
    assert not access.admits({"host": "localhost:8418", "cookie": cookies})


def test_line_breaks_in_data_begin_no_field():
    lines = message("rows", "a\rid: 9\r\nevent: reset\nb", 3).rstrip("\n").split("\n")
    assert lines == ["id: 3", "event: rows", "data: a", "data: id: 9", "data: event: reset", "data: b"]


def test_stream_is_reset_when_a_shorter_run_replaces_the_one(run, tmp_path):
    write_journal(tmp_path / "journal.sqlite", EVENTS[:8])

    def replace() -> None:
        for file in tmp_path.glob("journal.sqlite*"):
            file.unlink()
        write_journal(tmp_path / "journal.sqlite", EVENTS[:3])

    with served(tmp_path) as url:
        timer = Timer(1.0, replace)
        timer.start()
        found = streamed(url, "/live?after=7", quiet_seconds=4.0)
        timer.join()
    assert [one.event for one in found] == ["news", "reset"]


def test_head_is_never_behind_the_model(tmp_path, monkeypatch):
    """Events that are recorded while the feed reads must not look like another run's journal, which resets pages."""
    with closing(SqliteJournal(tmp_path / "journal.sqlite")) as journal:
        for event in EVENTS[:8]:
            record(journal, event)

        def history_of_a_busy_run(*args, **options):
            for event in EVENTS[8:12]:
                record(journal, event)
            return history(*args, **options)

        monkeypatch.setattr("flyball.app.dashboard.feed.history", history_of_a_busy_run)
        feed = Feed(locate_run(tmp_path))
        feed.read_part()
    assert (feed.head, feed.model.position) == (12, 12)


def test_controller_named_at_a_restart_joins_the_others(tmp_path):
    """A dashboard that follows already folds the journal again."""
    run = recording()
    write_journal(tmp_path / "journal.sqlite", run.events)
    settings = RunSettings.model_validate({"controllers": {"mine": {"use": "own_rules:Sets"}}})
    with TestClient(dashboard_of(tmp_path)) as client:
        caught_up(client, len(EVENTS))
        assert ">mine</h2>" not in client.get(f"/controllers/{KEY}").text
        run.add(RunConfigured(run_id="1", settings=settings.model_dump(mode="json")))
        append(tmp_path, run.events[-1:])
        limit = time.monotonic() + 30
        while ">mine</h2>" not in client.get(f"/controllers/{KEY}").text:
            assert time.monotonic() < limit
            time.sleep(0.1)


def test_stream_tells_a_page_that_the_run_has_ended(run):
    with served(run) as url:
        known = streamed(url, "/live?after=16&running=false", quiet_seconds=1.0)
        outdated = streamed(url, "/live?after=16&running=true")
    assert (known, [(one.event, one.data) for one in outdated]) == ([], [("run", "false\n")])


@pytest.mark.parametrize("body", ["two\u2028lines\x85", "file a\udcff"])
def test_odd_characters_hide_no_log_line(reader, run, body):
    record = {"timestamp": "2026-01-31T12:00:03Z", "severity_text": "ERROR", "body": f"odd {body}", "attributes": {}}
    (run / "logs").mkdir(exist_ok=True)
    with (run / "logs" / "odd.jsonl").open("wb") as file:
        file.write(render(None, "", record).encode(errors="replace") + b"\n")
    answer = reader.get("/logs/lines?daemon=odd")
    assert (answer.status_code, "odd " in answer.text) == (200, True)


def test_dashboard_with_an_unusable_key_does_not_start(run, tmp_path):
    settings = tmp_path / "flyball.toml"
    settings.write_text(
        f'[deployment]\nendpoint = "tcp://127.0.0.1:1"\n[deployment.keys]\nsecret = "gone"\nbroker = "{"a" * 64}"\n'
    )
    done = subprocess.run(
        [FLYBALL, "--run", run, "--config-file", settings, "dashboard", "--port", "0"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, "gone" in done.stderr) == (2, True)


@pytest.mark.timeout(60)
def test_server_ends_when_its_feed_breaks(run, monkeypatch):
    """End the server, which would otherwise go on with stale pages."""

    class BrokenFeed(Feed):
        def read_part(self) -> bool:
            raise RuntimeError("planted")

    monkeypatch.setattr("flyball.app.dashboard.server.Feed", BrokenFeed)
    with listen(DashboardSettings(port=0)) as server, pytest.raises(SystemExit, match="1"):
        serve(locate_run(run), Access(LOCAL, None, private=False), server)
