"""Guarantee (ADR-043): with two heads and a journal in PostgreSQL, the death of one loses nothing."""

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
from commands import invoke, refused, succeeded, told
from cut_network import HOST, network
from head_deaths import Death, deaths, faults, two_heads, under_load
from history_checks import check_history
from ports import free_port
from postgres_server import new_schema, postgres_server, replicated_servers, url_of
from running_loop import RunningLoop, flyball, running_loop
from systemd_machine import LIGHT_GAMES, LIGHT_RUN

from flyball.app.config import RunFolder
from flyball.app.core import BROKER
from flyball.app.events import DaemonStarted, ModelPromoted

pytest.importorskip("psycopg")

pytestmark = pytest.mark.timeout(400)


async def test_other_head_takes_over_and_nothing_is_lost(database: str, tmp_path: Path) -> None:
    with two_heads(tmp_path, database) as (heads, keys):
        seen = await deaths(heads, keys, seed=1, counts={Death.KILL: 3, Death.STOP: 1})
    assert len(seen.pauses) == 4
    assert faults(seen, database) == []


async def test_head_that_is_cut_off_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with network(2) as nodes, postgres_server(HOST) as server:
        url = new_schema(server.url)
        with two_heads(tmp_path, url, nodes) as (heads, keys):
            seen = await deaths(heads, keys, seed=1, counts={Death.PARTITION: 2})
        assert len(seen.pauses) == 2
        assert faults(seen, url) == []


async def test_acknowledged_events_survive_a_failover_of_postgres(tmp_path: Path) -> None:
    """Guarantee (ADR-040): commits wait for the replica, which hangs and then loses what it has not written."""
    with replicated_servers() as (primary, replica):
        schema = new_schema(primary.url).removeprefix(primary.url)
        url = f"{url_of(primary, replica)}&target_session_attrs=read-write{schema}"
        with two_heads(tmp_path, url) as (heads, keys):
            async with under_load(heads, keys) as seen:
                receiver = replica.receiver()
                os.kill(receiver, signal.SIGSTOP)
                await asyncio.sleep(1)
                primary.crash()
                died = time.monotonic()
                os.kill(receiver, signal.SIGKILL)
                replica.crash()
                await asyncio.sleep(2)
                replica.start()
                replica.promote()
                await seen.resumed(died)
        assert faults(seen, url) == []


def test_two_heads_without_a_shared_journal_are_refused(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text(
        '[deployment]\nendpoint = "tcp://127.0.0.1:7400"\nother_head = "tcp://127.0.0.1:7401"\n'
    )
    refused(invoke("up", run=tmp_path), 2, "each head would have a journal of its own", "deployment.journal.url")


class Machines:
    """Two heads and a worker, set up by ``flyball init``, with keys, a store and a database that they share."""

    def __init__(self, folder: Path, database: str) -> None:
        self._folder, store = folder, folder / "store"
        store.mkdir()
        addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        both = ("--head", addresses[0], "--standby", addresses[1], "--store", store)
        key = self._init("one", "head", *both, "--journal", database)["public"]
        settings = RunFolder(folder / "one").settings
        brisk = settings.read_text().replace("[deployment]", "[deployment]\nheartbeat_seconds = 1\ndrain_seconds = 3")
        settings.write_text(LIGHT_RUN + brisk + LIGHT_GAMES)
        self._init("two", "standby", "--first-head", folder / "one")
        worker = self._init("three", "worker", *both, "--head-key", key)["public"]
        for head in ("one", "two"):
            flyball(folder / head, "keys", "authorize", "three", "worker", worker)

    def _init(self, node: str, role: str, *words: object) -> dict[str, str]:
        return told(invoke("init", "--role", role, "--node", node, *words, "--json", self._folder / node))

    @contextmanager
    def running(self, node: str, role: str) -> Iterator[RunningLoop]:
        """Run a machine's daemons."""
        folder = self._folder / node
        settings = RunFolder(folder).settings.read_text()
        with running_loop(folder, settings, dashboard=role == "head", options=("--role", role)) as loop:
            yield loop


def kill_machine(loop: RunningLoop) -> None:
    """Kill all processes of a machine at once."""
    up = psutil.Process(loop.process.pid)
    for process in (up, *up.children(recursive=True)):
        process.kill()
    loop.process.wait()


def shown(loop: RunningLoop) -> str:
    """Return the first page of a head's dashboard."""
    address = re.search(r"Dashboard: (http\S+)", (loop.folder / "up.out").read_text())
    assert address
    with urlopen(address[1], timeout=30) as page:
        return page.read().decode()


def states(loop: RunningLoop) -> set[tuple[str, str]]:
    """Return nodes with the states of their daemons, as the broker tells a machine."""
    status = json.loads(flyball(loop.folder, "status", "--json"))
    return {(daemon["node"], daemon["state"]) for daemon in status["daemons"]}


def stands_by(loop: RunningLoop) -> bool:
    """Return whether a head's doctor finds the second head."""
    findings = json.loads(flyball(loop.folder, "doctor", "--format", "json", code=None))["findings"]
    return "standby-missing" not in {finding["code"] for finding in findings}


def test_whole_loop_goes_on_when_its_head_is_killed(database: str, tmp_path: Path) -> None:
    """Kill all processes of the active head, whose place the other one takes; then the first one is the standby."""
    machines = Machines(tmp_path, database)
    with ExitStack() as stack:
        one = stack.enter_context(machines.running("one", "head"))
        one.wait_for("the first head", lambda: one.ready("broker"))
        two = stack.enter_context(machines.running("two", "head"))
        worker = stack.enter_context(machines.running("three", "worker"))
        two.wait_for("the second head", lambda: stands_by(one))
        two.wait_for_loops(1)
        before = two.events()
        assert {event.data.node for event in two.events(DaemonStarted) if event.data.daemon == BROKER} == {"one"}
        kill_machine(one)
        two.wait_for("a promotion", lambda: two.events(ModelPromoted, after=len(before)))
        two.wait_for_loops(2, after=len(before))
        lost = {("one", "silent"), ("one", "stopped"), ("two", "ready"), ("three", "ready")}
        two.wait_for("the lost head", lambda: states(worker) == lost)
        assert '<span class="state ready">running' in shown(two)
        assert not stands_by(two)
        assert two.events()[: len(before)] == before

        again = stack.enter_context(machines.running("one", "head"))
        again.wait_for("the second head", lambda: stands_by(two))
        head = two.head()
        assert two.leave() == 0
        again.wait_for("the first head", lambda: again.ready("broker", after=head))
        assert [loop.leave() for loop in (worker, again)] == [0, 0]
        check_history(again.events())
    succeeded(invoke("replay", "--check", run=again.folder), "every conclusion follows")
