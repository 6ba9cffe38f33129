"""A real loop with Prometheus, a webhook and a collector of traces.

Prometheus is a real one. The others are servers on loopback.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from ports import free_port
from running_loop import BRISK, RunningLoop, running_loop
from scripted_server import OK, ScriptedServer, scripted_server

from flyball.app.events import (
    DaemonFailed,
    MatchesRequested,
    ModelPromoted,
    ModelRolledBack,
    SelfplayComplete,
    trace_id,
)

ROOT = Path(__file__).parents[2]
PROMETHEUS, GRAFANA = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "grafana" / "flyball.json"
VARIABLES = {"$config": ".*", "$instance": ".*", "$__rate_interval": "5m"}
MAY_BE_EMPTY = ("flyball_rating_velocity_elo_per_hour", "changes(", "flyball_journal_unshipped_")
"""Beginnings of queries that may be empty after a minute of a sound loop.

They span six hours, or one minute, or are about a journal that is shipped.
"""


@contextmanager
def in_thread(*script: bytes) -> Iterator[ScriptedServer]:
    """Serve in a thread, for tests without an event loop."""
    loop, ready, made = asyncio.new_event_loop(), threading.Event(), []
    stop = asyncio.Event()

    async def serve() -> None:
        async with scripted_server(*script) as server:
            made.append(server)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield made[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class Watched:
    """A loop with a metrics port, a webhook and a collector. Prometheus is there if it is installed."""

    def __init__(self, loop: RunningLoop, port: int, hook: ScriptedServer, collector: ScriptedServer) -> None:
        self.loop, self.port, self.hook, self.collector = loop, port, hook, collector
        self.prometheus = 0

    def metrics(self) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def ask(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def wait_for(self, what: str, reached: Callable[[], Any]) -> Any:
        return self.loop.wait_for(what, reached)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder, port = tmp_path_factory.mktemp("watched"), free_port()
    with in_thread(OK) as hook, in_thread(OK) as collector:
        (folder / "run").mkdir()
        secret = folder / "run" / "hook"
        secret.write_text(hook.url)
        secret.chmod(0o600)
        monitored = f"""
[deployment.metrics]
port = {port}
[deployment.traces]
endpoint = "http://127.0.0.1:{collector.port}/v1/traces"
[[deployment.notifications]]
name = "ops"
url_file = "hook"
events = ["MODEL_PROMOTED", "DAEMON_*"]
pause_seconds = 0.5
"""
        with running_loop(folder / "run", BRISK + monitored) as loop:
            made = Watched(loop, port, hook, collector)
            with prometheus(folder, made):
                loop.wait_for_loops(2)
                yield made
        assert not loop.events(DaemonFailed)


@contextmanager
def prometheus(folder: Path, watched: Watched) -> Iterator[None]:
    """Run Prometheus with the shipped configuration, if it is installed.

    The configuration gets the loop's port and shorter intervals.
    """
    command = shutil.which("prometheus")
    if command is None:
        yield
        return
    shutil.copytree(PROMETHEUS, folder / "prometheus")
    file, watched.prometheus = folder / "prometheus" / "prometheus.yml", free_port()
    text = file.read_text()
    assert "127.0.0.1:9464" in text
    file.write_text(text.replace("127.0.0.1:9464", f"127.0.0.1:{watched.port}").replace("15s", "1s"))
    arguments = [
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'series'}",
        f"--web.listen-address=127.0.0.1:{watched.prometheus}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([command, *arguments], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(30) == 0


NEEDS_PROMETHEUS = pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus, which is in Debian")


def test_metrics_show_what_the_loop_does(watched: Watched) -> None:
    def promoted() -> bool:
        counts = [
            line.split()[-1] for line in watched.metrics().splitlines() if line.startswith("flyball_promotions_t")
        ]
        return bool(counts) and float(counts[0]) >= 1

    watched.wait_for("a promotion in the metrics", promoted)
    text = watched.metrics()
    for daemon in ("broker", "training", "monitoring"):
        assert f'flyball_daemon_up{{daemon="{daemon}",node="laptop"}} 1.0' in text
    assert "flyball_dead_letters 0.0" in text
    assert 'flyball_deliveries_total{outcome="delivered",receiver="traces"}' in text


def test_webhook_is_told_of_promotions(watched: Watched) -> None:
    told = watched.wait_for(
        "a promotion at the webhook",
        lambda: [
            one for request in watched.hook.requests for one in request.json() if one["type"].endswith("promoted")
        ],
    )
    recorded = {event.id: event for event in watched.loop.events(ModelPromoted)}
    assert {one["id"] for one in told} <= recorded.keys()
    assert told[0]["traceparent"].split("-")[1] == trace_id(recorded[told[0]["id"]].envelope)


def test_collector_gets_traces_from_request_to_promotion(watched: Watched) -> None:
    def spans() -> dict[bytes, Any]:
        requests = [ExportTraceServiceRequest.FromString(one.body) for one in [*watched.collector.requests]]
        found = (s for one in requests for r in one.resource_spans for scope in r.scope_spans for s in scope.spans)
        return {span.span_id: span for span in found}

    def chain() -> list[str]:
        known = spans()
        for span in known.values():
            if span.name == "MODEL_PROMOTED" and span.parent_span_id in known:
                names, cause = [], span
                while cause:
                    names.append(cause.name)
                    cause = known.get(cause.parent_span_id)
                if "SELFPLAY_COMPLETE" in names or "TRAINING_COMPLETED" in names:
                    return names
        return []

    names = watched.wait_for("a promotion's trace", chain)
    assert names[0] == "MODEL_PROMOTED"
    assert {"EVALUATION_COMPLETED", "TRAINING_COMPLETED"} & set(names)


def test_logs_name_the_traces_of_events(watched: Watched) -> None:
    played = watched.loop.events(SelfplayComplete, ModelPromoted, MatchesRequested)
    traces = {trace_id(event.envelope) for event in played}
    lines = [
        json.loads(line)
        for file in (watched.loop.folder / "logs").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert traces & {line.get("trace_id") for line in lines}


def test_killed_monitoring_loses_no_promotion_and_no_count(watched: Watched) -> None:
    def count() -> float:
        found = [line for line in watched.metrics().splitlines() if line.startswith("flyball_promotions_total")]
        return float(found[0].split()[-1]) if found else 0.0

    before, position = count(), watched.loop.head()
    os.kill(watched.loop.pid_of("monitoring"), signal.SIGKILL)
    watched.wait_for("monitoring ready again", lambda: watched.loop.ready("monitoring", after=position))
    watched.loop.wait_for_loops(2, after=position)
    first, *_, last = [e.sequence for e in watched.loop.events(ModelPromoted) if e.data.step > 0]

    def told() -> set[str]:
        return {one["id"] for request in [*watched.hook.requests] for one in request.json()}

    recorded = {e.id for e in watched.loop.events(ModelPromoted) if first <= e.sequence <= last}
    watched.wait_for("every promotion at the webhook", lambda: recorded <= told())
    watched.wait_for("every promotion in the count", lambda: count() >= len(recorded) >= before)


def queries() -> Iterator[str]:
    dashboard = json.loads(GRAFANA.read_text())
    for expression in [
        *(target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())),
        *(one["expr"] for one in dashboard["annotations"]["list"]),
    ]:
        for name, value in VARIABLES.items():
            expression = expression.replace(name, value)  # noqa: PLW2901
        yield expression


@NEEDS_PROMETHEUS
def test_prometheus_answers_every_query_of_the_dashboard(watched: Watched) -> None:
    def all_answered() -> bool:
        answers = {query: watched.ask("query", query=query)["result"] for query in queries()}
        return all(answer or query.startswith(MAY_BE_EMPTY) for query, answer in answers.items())

    watched.wait_for("answers to all queries", all_answered)


@NEEDS_PROMETHEUS
def test_prometheus_finds_the_dashboards_variables(watched: Watched) -> None:
    assert watched.ask("label/config/values") == ["tic_tac_toe_2p"]

    def healthy() -> bool:
        (target,) = watched.ask("targets")["activeTargets"]
        return (target["health"], target["lastError"]) == ("up", "")

    watched.wait_for("a target that was read in time", healthy)


@NEEDS_PROMETHEUS
def test_prometheus_rules_are_valid_and_silent_for_a_sound_loop(watched: Watched) -> None:
    def evaluated() -> list[dict[str, Any]]:
        rules = [rule for group in watched.ask("rules")["groups"] for rule in group["rules"]]
        return rules if all(rule["health"] != "unknown" for rule in rules) else []

    rules = watched.wait_for("rules evaluated", evaluated)
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
    allowed = {"FlyballDiskFull", "FlyballDiskFills"}  # the test's machine may have little room
    if watched.loop.events(ModelRolledBack):  # a model that is a little worse may get through the gate
        allowed.add("FlyballRegression")
    assert {rule["name"] for rule in rules if rule.get("state") == "firing"} <= allowed
