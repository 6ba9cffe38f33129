"""Doctor names each planted trouble of a running loop. It runs on the head and on a worker's machine."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fake_text_server import FakeTextServer
from language_models import small_base
from ports import free_port
from running_loop import FLYBALL, RunningLoop, flyball, running_loop

from flyball.app.bus import JournalPublisher, ZmqBus
from flyball.app.bus.access import ClientKeys
from flyball.app.bus.keys import Key, KeyList, new_pair, write_secret
from flyball.app.bus.ports import Sign
from flyball.app.core import EventId
from flyball.app.events import (
    DaemonReady,
    DaemonStarted,
    ModelPromoted,
    NodeLost,
    Payload,
    SelfplayComplete,
    TrainingUnblocked,
    originate,
)
from flyball.app.journal import SqliteJournal
from flyball.app.store import MemoryStore
from flyball.daemons.clock import SystemClock

GOOD, STUCK = "tic_tac_toe_2p", "hex4_2p"
PLANTED = {"key-refused", "crash-loop", "version-mix", "training-blocked", "model-damaged", "regression"}
SETTINGS = f"""
seed = 7
configs = ["{GOOD}", "{STUCK}"]
tick_seconds = 1.0
[deployment]
node = "head"
endpoint = "tcp://127.0.0.1:{{port}}"
heartbeat_seconds = 0.5
node_silent_seconds = 5.0
drain_seconds = 1.0
[deployment.keys]
secret = "keys/head.secret"
allowed = "keys/allowed"
[games.{GOOD}]
rows_per_training = 256
[games.{GOOD}.selfplay]
games_per_request = 64
[games.{GOOD}.evaluation]
random_games = 40
model_games = 20
anchor_games = 20
[games.{STUCK}]              # cut off before anybody wins, so its quality stays below 0.64, and training pauses
game = "hex(board_size=4)"
players = 2
max_moves = 6
[games.{STUCK}.selfplay]
games_per_request = 64
[games.{STUCK}.evaluation]
random_games = 20
[feedback.intensity]
cooldown_seconds = 1.0
normal = 0.75
reduced = 0.7
[feedback.scheduler]
idle_seconds = 0.5
"""
WORKER_SETTINGS = """
[deployment]
node = "node1"
endpoint = "tcp://127.0.0.1:{port}"
store = "{store}"
[deployment.keys]
secret = "keys/node1.secret"
broker = "{broker}"
"""


@dataclass
class Examined:
    """Findings of doctor by code, and the time that it took."""

    findings: dict[str, list[dict[str, Any]]]
    seconds: float

    def where(self, code: str) -> list[str]:
        return [one["where"] for one in self.findings.get(code, [])]


def doctor(folder: Path, *prefix: str) -> Examined:
    command = [*prefix, FLYBALL, "--run", str(folder), "doctor", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    told = json.loads(done.stdout)
    findings: dict[str, list[dict[str, Any]]] = {}
    for one in told["findings"]:
        findings.setdefault(one["code"], []).append(one)
    assert (done.returncode == 1) == (told["worst"] == "critical")
    return Examined(findings, told["seconds"])


@dataclass
class Cluster:
    """A head that runs, and the run folder of a worker's machine."""

    loop: RunningLoop
    worker: Path
    slow: ClientKeys
    endpoint: str


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder, worker = tmp_path_factory.mktemp("head"), tmp_path_factory.mktemp("worker")
    head, node, slow, port = new_pair(), new_pair(), new_pair(), free_port()
    write_secret(folder / "keys" / "head.secret", head)
    write_secret(worker / "keys" / "node1.secret", node)
    admitted = (
        Key("head", "head", head.public),
        Key("node1", "worker", node.public),
        Key("slow", "worker", slow.public),
    )
    KeyList(admitted).write(folder / "keys" / "allowed")
    (worker / "flyball.toml").write_text(WORKER_SETTINGS.format(port=port, store=folder / "store", broker=head.public))
    with running_loop(folder, SETTINGS.format(port=port)) as loop:
        yield Cluster(loop, worker, ClientKeys(slow, head.public), f"tcp://127.0.0.1:{port}")


async def doctor_beside_a_slow_machine(cluster: Cluster) -> Examined:
    """Run doctor while a daemon elsewhere shows that it is far behind.

    That daemon belongs to another machine and version.
    """
    who, now = {"daemon": "selfplay_worker", "node": "slow"}, SystemClock().now()
    started = DaemonStarted(**who, pid=1, version="0.0.9")
    facts: list[Payload] = [started, DaemonReady(**who, position=1, capacity=1)]
    envelopes = [originate(fact, event_id=EventId(fact.event_name), time=now) for fact in facts]
    bus = ZmqBus(cluster.endpoint, producer="selfplay_worker@slow", deadline_s=30.0, keys=cluster.slow)
    try:
        await bus.publish_many(envelopes)
        examined = asyncio.get_running_loop().create_task(asyncio.to_thread(doctor, cluster.loop.folder))
        while not examined.done():
            bus.show_life(Sign(position=1, lag=7000, jobs=0, requests=0))
            await asyncio.wait([examined], timeout=0.5)
        return await examined
    finally:
        await bus.close()


def current_blob(loop: RunningLoop) -> Path:
    """Return the file of the current model. The model only stays current once training is blocked."""
    model = [event.data.model for event in loop.events(ModelPromoted) if event.subject == GOOD][-1]
    return next(path for path in (loop.folder / "store").rglob(model))


@pytest.mark.timeout(500)
def test_doctor_names_each_planted_trouble(cluster: Cluster, record_property: Any) -> None:
    loop = cluster.loop
    loop.wait_for_loops(1)
    for folder in (loop.folder, cluster.worker):
        assert PLANTED.isdisjoint(doctor(folder).findings), "a running loop has no trouble"

    flyball(loop.folder, "emit", "TRAINING_BLOCKED_BY_QUALITY", '{"reason": "a rehearsal"}', "--config-key", GOOD)
    for number in range(1, 4):  # a crash loop
        os.kill(loop.pid_of("curves"), signal.SIGKILL)
        starts = number + 1
        loop.wait_for("a restart", lambda starts=starts: count_starts(loop, "curves") >= starts)
    paused = lambda: len([e for e in loop.events(SelfplayComplete) if e.subject == STUCK]) >= 12  # noqa: E731
    loop.wait_for("shards that nothing can be learned from", paused)
    blob = current_blob(loop)
    regression = {"model": blob.name, "last_good": None, "elo_drop": 25.0, "severity": "minor"}
    regression |= {"games": 100, "opponent": "random"}
    flyball(loop.folder, "emit", "REGRESSION_DETECTED", json.dumps(regression), "--config-key", GOOD)
    sound = blob.read_bytes()
    blob.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    worker = loop.pid_of("selfplay_worker")
    os.kill(worker, signal.SIGSTOP)
    try:
        flyball(loop.folder, "keys", "revoke", "node1")
        refused = doctor(cluster.worker)
        loop.wait_for("the loss of the worker", lambda: lost(loop, "selfplay_worker"))
        found = asyncio.run(doctor_beside_a_slow_machine(cluster))
    finally:
        os.kill(worker, signal.SIGCONT)
        blob.write_bytes(sound)
    assert refused.where("key-refused") == ["node1"]
    # The broker also names node1 if it had not yet noticed that node1's first doctor had ended its connection.
    assert set(found.where("key-refused")) - {"node1"} == {"unknown key at 127.0.0.1"}
    assert "selfplay_worker@head" in found.where("daemon-silent")
    assert found.where("crash-loop") == ["curves@head"]
    assert "selfplay_worker@slow" in found.where("daemon-lagging")
    assert "version-mix" in found.findings
    assert found.where("training-blocked") == [GOOD]
    assert found.where("livelock") == [STUCK]
    assert found.where("model-damaged") == [GOOD]
    assert found.where("regression") == [GOOD]
    record_property("doctor_seconds", found.seconds)


def lost(loop: RunningLoop, daemon: str) -> bool:
    return any(event.data.daemon == daemon for event in loop.events(NodeLost))


def count_starts(loop: RunningLoop, daemon: str) -> int:
    return sum(event.data.daemon == daemon for event in loop.events(DaemonStarted))


@pytest.fixture(scope="module")
def stopped(cluster: Cluster) -> Path:
    assert cluster.loop.leave() == 0
    return cluster.loop.folder


CAN_MOUNT = (
    shutil.which("unshare") is not None
    and subprocess.run(
        ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        check=False,
    ).returncode
    == 0
)


@pytest.mark.skipif(not CAN_MOUNT, reason="needs unshare --map-root-user --mount, and tmpfs")
def test_doctor_names_a_full_disk(stopped: Path) -> None:
    mount = (
        'mount -t tmpfs -o size=4m tmpfs "$1/store" && head -c 3900000 /dev/zero > "$1/store/much"; shift; exec "$@"'
    )
    found = doctor(stopped, "unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(stopped))
    severities = {one["where"]: one["severity"] for one in found.findings["disk-full"]}
    assert severities[str(stopped / "store")] == "critical"
    assert found.where("model-damaged"), "the models are not on that disk"


def test_doctor_names_the_text_servers_that_are_away(stopped: Path) -> None:
    with FakeTextServer(small_base(MemoryStore())) as server:
        away = f"http://127.0.0.1:{free_port()}"
        found = doctor(stopped, "env", f"FLYBALL_DEPLOYMENT__TEXT__SERVERS={json.dumps([server.address, away])}")
    ((where, severity),) = ((one["where"], one["severity"]) for one in found.findings["text-server-away"])
    assert (where, severity) == (away, "warning")


class Tomorrow:
    """A clock that is a day ahead."""

    def now(self) -> datetime:
        return SystemClock().now() + timedelta(days=1)

    def monotonic(self) -> float:
        return SystemClock().monotonic()


def test_doctor_names_a_clock_jump_and_damage_of_a_stopped_run(stopped: Path) -> None:
    with closing(SqliteJournal(stopped / "journal.sqlite")) as journal:
        event = originate(
            TrainingUnblocked(reason="test"), event_id=EventId("late"), time=Tomorrow().now(), subject=GOOD
        )
        JournalPublisher(journal, Tomorrow()).publish([event], "cli@head")
    assert doctor(stopped).where("clock-skew") == ["head"]
    with (stopped / "journal.sqlite").open("r+b") as file:
        file.write(b"\0" * 64)
    found = doctor(stopped)
    assert found.where("journal-damaged") == ["journal"]
