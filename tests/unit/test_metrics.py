"""Metrics of a run: values, names, and the files that use them."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from socket import create_connection, create_server

import pytest
import yaml
from generated_run import generated, hasty
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from flyball.app.bus.ports import Present, Sign
from flyball.app.config import RunFolder
from flyball.app.config.loading import load
from flyball.app.controllers.fold import Fold
from flyball.app.events import Event, ModelPromoted, ModelRolledBack, Payload, SelfplayComplete, TrainingCompleted
from flyball.app.job_specs import JobContext
from flyball.app.status.metrics import METRICS, Delivery, Exposition, Storage, View, reference
from flyball.app.status.monitored import BOUNDS, CAUSES, RESULTS, ConfigFold, DaemonFold, Durations, EventCounts
from flyball.app.status.status import Board
from flyball.daemons.clock import SystemClock
from flyball.daemons.exports import Exports
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.metrics_server import PortTaken, answering
from flyball.daemons.registry import DAEMONS

ROOT = Path(__file__).parents[2]
PROMETHEUS, GRAFANA = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "grafana" / "flyball.json"
IDENTITY = WorkerIdentity("monitoring@laptop", "laptop", JobContext(store="store"))
SERIES = re.compile(r"\bflyball_[a-z0-9_]+")
PROMTOOL = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus, which is in Debian")


@cache
def events() -> tuple[Event[Payload], ...]:
    return tuple(generated(3000, seed=2, settings=hasty(), trouble=10))


@cache
def folded() -> Fold:
    fold = Fold(DAEMONS["monitoring"].factories(IDENTITY))
    assert not fold.feed(events()).failures
    return fold


def view() -> View:
    fold = folded()
    assert fold.settings
    sign = Sign(position=3, lag=12, jobs=1, requests=2)
    presence = {
        "training@a": Present(daemon="training", node="a", heard_seconds_ago=0.5, lost=False, sign=sign),
        "training@b": Present(daemon="training", node="b", heard_seconds_ago=99.0, lost=True, sign=None),
    }
    return View(
        now=events()[-1].recordedtime,
        head=events()[-1].sequence,
        settings=fold.settings,
        states=fold.states,
        configs=fold.rows(ConfigFold.name),
        daemons=fold.rows(DaemonFold.name),
        counts=fold.rows(EventCounts.name),
        presence=presence,
        storage=Storage(1000, 200, free=10**11, size=10**12, dead_letters=0),
        deliveries={"ops": Delivery({"delivered": 3, "failed": 0, "dropped": 0}, behind=2)},
    )


def exposed(shown: View | None) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Exposition(lambda: shown))
    return generate_latest(registry).decode()


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return values by metric name and label values. Label values are in the order of the label names."""
    return {
        (one.name, *(value for _, value in sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_metrics_agree_with_status_state_and_events() -> None:
    found, board = samples(exposed(view())), Board()
    board.feed(events())
    champions = {
        config.key: config.elo for config in board.status(events()[-1].recordedtime, None, running=True).configs
    }
    for key, row in board.configs.items():
        state = folded().states[key]
        assert found["flyball_rating_elo", key] == champions[key]
        assert found["flyball_selfplay_games_total", key] == row.games == state.games_played
        assert found["flyball_promotions_total", key] == row.promotions
        assert found["flyball_rollbacks_total", key] == row.rollbacks
        assert found["flyball_training_intensity", key, state.training_intensity] == 1
        assert found["flyball_training_blocked", key] == (state.training_block is not None)
    assert sum(row.promotions for row in board.configs.values()) > 0
    assert sum(row.rollbacks for row in board.configs.values()) > 0
    found, seen = samples(exposed(view())), [type(event.data) for event in events()]
    for payload in (SelfplayComplete, TrainingCompleted, ModelPromoted, ModelRolledBack):
        assert found["flyball_events_total", payload.event_name] == seen.count(payload) > 0
    trained = [value for labels, value in found.items() if labels[0] == "flyball_jobs_total" and "training" in labels]
    assert sum(trained) == sum(seen.count(kind) for kind, (job, _) in RESULTS.items() if job == "training")
    recorded = {event.id: event.recorded_us for event in events() if type(event.data) in CAUSES}
    took: dict[str, list[float]] = {}
    for event in events():
        kind, outcome = RESULTS.get(type(event.data), ("", ""))
        if outcome == "completed" and event.envelope.causationid in recorded:
            since = recorded.pop(event.envelope.causationid)
            took.setdefault(kind, []).append((event.recorded_us - since) / 1e6)
    found = samples(exposed(view()))
    for kind in ("training", "selfplay"):
        sums = [v for labels, v in found.items() if labels[0] == "flyball_job_duration_seconds_sum" and kind in labels]
        assert sum(sums) == pytest.approx(sum(took[kind]))


def test_feedback_state_beside_controllers_is_folded_once() -> None:
    """A snapshot folds the reducers of all daemons. ``FeedbackState`` is among them, and must not be folded twice."""
    factories = tuple(one for spec in DAEMONS.values() for one in spec.factories(IDENTITY))
    fold = Fold(factories)
    fold.feed(events()[:1000])
    alone = Fold(DAEMONS["monitoring"].factories(IDENTITY))
    alone.feed(events()[:1000])
    assert fold.states == alone.states
    assert [one.name for one in fold.reducers].count("FeedbackState") == 1


def test_taken_port_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with create_server(("127.0.0.1", 0)) as other:
        settings = {"deployment": {"metrics": {"port": other.getsockname()[1]}}}
        exports = Exports(load(tmp_path, settings), RunFolder(tmp_path))
        with pytest.raises(PortTaken, match="Address already in use"), exports._answering():
            pass


def scrape(port: int, host: str, method: str = "GET") -> tuple[int, str, str]:
    """Return status, type and body of an answer; http.client itself would hide the body of a HEAD."""
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, "/metrics", headers={"Host": host})
    answer = connection.getresponse()
    body = answer.read() if method == "GET" else answer.fp and answer.fp.read()
    connection.close()
    return answer.status, answer.headers["Content-Type"], (body or b"").decode()


def metrics() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Exposition(view))
    return registry


def test_scrape_under_a_foreign_name_is_refused() -> None:
    """Refusal keeps a web page from reading metrics by DNS rebinding."""
    foreign = ("flyball.example", "127.0.0.1.flyball.example", "", "[::1", "localhost:80,flyball.example")
    with answering("127.0.0.1", 0, metrics()) as port:
        hosts = {**dict.fromkeys(("localhost", f"127.0.0.1:{port}", "LOCALHOST:9"), 200), **dict.fromkeys(foreign, 421)}
        for host, expected in hosts.items():
            status, _, text = scrape(port, host)
            assert (status, "flyball_build_info" in text) == (expected, expected == 200)
        for host in ("localhost", "flyball.example"):
            status, kind, text = scrape(port, host, "HEAD")
            assert (status, kind.startswith("text/"), text) == (hosts[host], True, "")
    with answering("0.0.0.0", 0, metrics()) as port:
        assert scrape(port, "head.example")[0] == 200, "an open port has any name"


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: local"])
def test_silent_client_is_dropped(sent: bytes) -> None:
    with answering("127.0.0.1", 0, metrics(), idle_seconds=0.05) as port, create_connection(("127.0.0.1", port)) as one:
        one.settimeout(20)
        one.sendall(sent)
        assert one.recv(100) == b""


def test_daemons_are_up_or_lost_as_the_broker_says() -> None:
    found = samples(exposed(view()))
    assert (found["flyball_daemon_up", "training", "a"], found["flyball_daemon_up", "training", "b"]) == (1, 0)
    assert found["flyball_daemon_lag_events", "training", "a"] == 12
    assert ("flyball_daemon_lag_events", "training", "b") not in found
    found = samples(exposed(replace(view(), presence=None)))
    up = {labels[1]: value for labels, value in found.items() if labels[0] == "flyball_daemon_up"}
    assert up == {"broker": 0}


def test_exposition_is_valid_and_has_no_ids() -> None:
    values = {value for labels in samples(exposed(view())) for value in labels[1:]}
    assert values
    assert not [value for value in values if re.fullmatch("[0-9a-f]{16,}", value)]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Exposition(view))
    assert openmetrics(registry).endswith(b"# EOF\n")
    settings = folded().settings
    assert settings
    fresh = exposed(View(now=SystemClock().now(), head=0, settings=settings))
    assert "flyball_rating_elo" not in fresh
    assert "flyball_journal_bytes" not in fresh
    assert samples(fresh)["flyball_selfplay_games_total", "tic_tac_toe_2p"] == 0
    assert exposed(None) == ""


@PROMTOOL
def test_promtool_finds_no_fault_in_names_and_units() -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=exposed(view()), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@given(seconds=st.lists(st.floats(0, 1e6), max_size=30))
def test_durations_lie_in_the_buckets_that_prometheus_expects(seconds: list[float]) -> None:
    counted = Durations()
    for one in seconds:
        counted = counted.with_one(one)
    for place, bound in enumerate(BOUNDS):
        assert sum(counted.counts[: place + 1]) == sum(one <= bound for one in seconds)
    assert sum(counted.counts) == len(seconds)


def test_scrape_is_shown_rows_as_they_were(tmp_path: Path) -> None:
    exports, fold = Exports(load(tmp_path), RunFolder(tmp_path)), Fold(DAEMONS["monitoring"].factories(IDENTITY))
    fold.feed(events()[:500])
    exports.show(fold, 500)
    before = exports._present()
    fold.feed(events()[500:])
    assert before
    assert before.counts != fold.rows(EventCounts.name)
    assert exports._present().counts == before.counts  # type: ignore[union-attr]


def test_reference_is_as_the_program_writes_it() -> None:
    assert (ROOT / "ADR" / "guide" / "metrics.md").read_text() == reference(), (
        "write it: python -m flyball.app.status.metrics"
    )


def queries() -> Iterator[str]:
    for name in ("rules.yml", "alerts.yml"):
        for group in yaml.safe_load((PROMETHEUS / name).read_text())["groups"]:
            yield from (rule["expr"] for rule in group["rules"])
    dashboard = json.loads(GRAFANA.read_text())
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ()))
    yield from (one["expr"] for one in dashboard["annotations"]["list"])
    yield from (one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query")


def test_dashboard_shows_our_metrics_in_separate_panels() -> None:
    rules = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"][0]["rules"]
    known = {metric.name for metric in METRICS}
    known |= {f"flyball_job_duration_seconds_{part}" for part in ("bucket", "sum", "count")}
    recorded = {rule["record"] for rule in rules}
    for query in queries():
        for record in recorded:
            query = query.replace(record, "")  # noqa: PLW2901
        assert set(SERIES.findall(query)) <= known, query
    shown = set(SERIES.findall(" ".join(queries())))
    parts = {f"flyball_job_duration_seconds_{part}": "flyball_job_duration_seconds" for part in ("bucket", "sum")}
    assert {metric.name for metric in METRICS} - {parts.get(name, name) for name in shown} == set()
    panels = json.loads(GRAFANA.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


def alerts() -> Iterator[dict[str, dict[str, str]]]:
    for group in yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]:
        yield from group["rules"]


def test_alerts_have_runbooks_and_tests() -> None:
    for alert in alerts():
        assert alert["labels"]["severity"] in ("warning", "critical")
        page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}, anchor
    text = (PROMETHEUS / "rules_test.yml").read_text()
    records = [rule["record"] for rule in yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"][0]["rules"]]
    assert [record for record in records if f"expr: {record}" not in text and f"({record}" not in text] == []
    fires = re.findall(r"eval_time: \w+\n\s+alertname: (\w+)\n\s+exp_alerts:", text)
    assert {alert["alert"] for alert in alerts()} - set(fires) == set()


@PROMTOOL
@pytest.mark.parametrize("command", [["check", "config", "prometheus.yml"], ["test", "rules", "rules_test.yml"]])
def test_promtool_accepts_configuration_and_rules(command: list[str]) -> None:
    done = subprocess.run(["promtool", *command], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
