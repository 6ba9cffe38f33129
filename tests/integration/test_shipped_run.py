"""A broker's journal is shipped while it runs, and a run goes on from what was shipped (ADR-042)."""

import asyncio
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from bus_rig import broker_daemon, checked, run_feedback
from commands import invoke, refused, succeeded
from generated_run import generated, hasty, write_generated
from s3_server import CREDENTIALS
from shipped import raws

from flyball.app.bus import ZmqBus
from flyball.app.config import Deployment, RunFolder
from flyball.app.config.loading import load
from flyball.app.engine import python_module
from flyball.app.events import DaemonStopped
from flyball.app.journal import SqliteJournalReader, history
from flyball.app.journal.database import locked
from flyball.app.journal.opening import journal_of
from flyball.app.journal.snapshots import snapshot_path
from flyball.daemons.exports import storage_of
from flyball.daemons.run_folder import bus_endpoint, of_other_history
from flyball.daemons.shipping import LAST_SECONDS, ShippingState, Stop

EVENTS = 1_000


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    disk = tmp_path / "disk"
    disk.mkdir()
    return disk


@pytest.fixture
def settings(disk: Path) -> str:
    return f'[deployment.journal]\nship = "{disk}"\nship_seconds = 0.1\n'


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "run").mkdir()
    return RunFolder(tmp_path / "run")


@pytest.fixture
def recorded(folder: RunFolder, settings: str) -> RunFolder:
    """Return a run of a thousand events, of which 600 are archived."""
    write_generated(folder.journal, list(generated(EVENTS, settings=hasty(), seed=3)))
    folder.settings.write_text(settings)
    succeeded(invoke("journal", "archive", "--keep", 400, run=folder.path))
    return folder


def wait_for(reached: Callable[[], Any], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def shipped(folder: RunFolder) -> int:
    try:
        return int(json.loads(folder.shipping.read_bytes())["position"])
    except FileNotFoundError:
        return 0


def head(folder: RunFolder) -> int:
    with closing(SqliteJournalReader(folder.journal)) as reader:
        return reader.head


def unshipped(folder: RunFolder) -> int | None:
    """Return the number of events that are not shipped, as ``flyball status`` says."""
    count: int | None = json.loads(invoke("status", "--json", run=folder.path).stdout)["unshipped"]
    return count


def shippers(broker: int) -> list[psutil.Process]:
    children = psutil.Process(broker).children()
    return [child for child in children if "ship" in child.cmdline()]


def publish(folder: RunFolder, count: int, who: str) -> None:
    async def send() -> None:
        bus = ZmqBus(bus_endpoint(folder, Deployment()), producer=who)
        await bus.publish_many([checked(number, who=who) for number in range(count)])
        await bus.close()

    asyncio.run(send())


def test_broker_ships_what_it_records(folder: RunFolder, settings: str, disk: Path) -> None:
    """The last shipment has the broker's own end. The next start goes on there."""
    for turn in (1, 2):
        with broker_daemon(folder.path, settings):
            publish(folder, 20, f"turn{turn}")
            wait_for(lambda: shipped(folder) == head(folder))
        assert shipped(folder) == head(folder)
    restored = RunFolder(folder.path.with_name("restored"))
    succeeded(invoke("journal", "restore", disk, run=restored.path), f"up to position {head(folder)}")
    assert list(raws(restored.journal)) == list(raws(folder.journal))
    with closing(SqliteJournalReader(restored.journal)) as reader:
        assert len(list(history(reader, types={DaemonStopped}))) == 2


def test_killed_shipper_starts_again_and_goes_on(folder: RunFolder, settings: str, disk: Path) -> None:
    with broker_daemon(folder.path, settings) as broker:
        publish(folder, 5, "before")
        wait_for(lambda: shipped(folder) == head(folder))
        (shipper,) = shippers(broker.pid)
        shipper.kill()
        publish(folder, 5, "after")
        wait_for(lambda: shipped(folder) == head(folder))
        stderr = folder.path / "broker.stderr"
        assert "shipping failed" in stderr.read_text()
        os.truncate(stderr, 0)  # nothing else may be there
    restored = RunFolder(folder.path.with_name("restored"))
    succeeded(invoke("journal", "restore", disk, run=restored.path))
    assert list(raws(restored.journal)) == list(raws(folder.journal))


def test_shipper_of_a_killed_broker_ships_the_rest(folder: RunFolder, settings: str) -> None:
    """Kill -9 the broker alone: the journal is whole, so its shipper copies it to the end, and ends."""
    with broker_daemon(folder.path, settings) as broker:
        publish(folder, 5, "before")
        wait_for(lambda: shipped(folder) == head(folder))
        (shipper,) = shippers(broker.pid)
        shipper.suspend()
        publish(folder, 5, "unseen")
        assert shipped(folder) < head(folder)
        os.kill(broker.pid, signal.SIGKILL)
        broker.join()
        shipper.resume()
        wait_for(lambda: not shipper.is_running() or shipper.status() == psutil.STATUS_ZOMBIE)
    assert shipped(folder) == head(folder)


def test_place_that_is_away_does_not_hold_up_the_broker(folder: RunFolder, settings: str, disk: Path) -> None:
    """Shipping goes on by itself when the place is back."""
    disk.rmdir()
    with broker_daemon(folder.path, settings):
        publish(folder, 20, "away")
        wait_for(folder.shipping.exists)
        answer = invoke("status", run=folder.path)
        assert "The journal is not shipped" in answer.stderr
        assert "deployment.journal.ship" in json.loads(folder.shipping.read_bytes())["hint"]
        disk.mkdir()
        wait_for(lambda: shipped(folder) == head(folder))
        wait_for(lambda: "not shipped" not in invoke("status", run=folder.path).stderr)
    lines = [json.loads(line)["body"] for line in folder.log("shipping").read_text().splitlines()]
    assert lines == ["shipping", "journal not shipped", "journal shipped again"]


def test_daemon_ahead_of_a_restored_journal_rebuilds(folder: RunFolder, settings: str, disk: Path) -> None:
    """A daemon on a sound disk knows events that were never shipped: its state is of another history (ADR-005)."""
    with broker_daemon(folder.path, settings):
        assert run_feedback(folder) == 0
        wait_for(lambda: shipped(folder) == head(folder))
    with broker_daemon(folder.path):
        assert run_feedback(folder) == 0
    assert shipped(folder) < head(folder)
    for file in folder.path.glob("journal.sqlite*"):
        file.unlink()
    succeeded(invoke("journal", "restore", disk, run=folder.path))
    with broker_daemon(folder.path, settings):
        assert run_feedback(folder) == 1
        assert [path.parent.name for path in of_other_history(folder)] == ["outbox", "state"]
        assert run_feedback(folder) == 0
        wait_for(lambda: shipped(folder) == head(folder))


def test_restored_run_replays_and_has_its_snapshot(recorded: RunFolder, disk: Path, tmp_path: Path) -> None:
    succeeded(invoke("journal", "ship", run=recorded.path), f"up to position {EVENTS} of {EVENTS}")
    new = tmp_path / "new"
    restored = succeeded(
        invoke("journal", "restore", disk, run=new), "are in the archive", "What was recorded after it"
    )
    assert f"up to position {EVENTS}, recorded at" in restored.stderr
    assert restored.stdout == ""
    for words in (("journal", "verify"), ("replay", "--check")):
        succeeded(invoke(*words, run=new))
    assert [path.name for path in sorted((new / "archive").iterdir()) if path.suffix != ".lock"] == [
        path.name for path in sorted((recorded.path / "archive").iterdir()) if path.suffix != ".lock"
    ]
    refused(invoke("journal", "restore", disk, run=new), 1, "is there already", "new run folder")


def test_damage_is_listed_and_the_exit_code_is_1(recorded: RunFolder, disk: Path, tmp_path: Path) -> None:
    succeeded(invoke("journal", "ship", run=recorded.path))
    (segment,) = disk.glob("journal/*/segments/*")
    segment.write_bytes(segment.read_bytes()[:-1])
    answer = invoke("journal", "restore", disk, run=tmp_path / "new")
    assert answer.exit_code == 1
    first, second = answer.stdout.splitlines()
    assert segment.name in first
    assert second.startswith("Damaged or missing: The archived events 1 to ")
    assert f"up to position {EVENTS}" in answer.stderr


def test_status_and_doctor_say_what_is_not_shipped(recorded: RunFolder, settings: str) -> None:
    answer = invoke("status", "--json", run=recorded.path)
    assert json.loads(answer.stdout)["unshipped"] == EVENTS
    assert f"s behind, {EVENTS:,} events. See: flyball " in answer.stderr
    findings = json.loads(invoke("doctor", "--format", "json", run=recorded.path).stdout)["findings"]
    late, beside = (finding for finding in findings if finding["code"] == "journal-not-shipped")
    assert f"s behind, {EVENTS:,} events" in late["what"]
    assert "the file system that it is on" in beside["what"]
    invoke("journal", "ship", run=recorded.path)
    assert unshipped(recorded) == 0
    recorded.settings.write_text("")
    assert unshipped(recorded) is None
    refused(invoke("journal", "ship", run=recorded.path), 2, "deployment.journal.ship is not set")


def test_status_says_what_is_incomplete(recorded: RunFolder) -> None:
    snapshot_path(recorded.path / "archive", 1).mkdir()
    assert invoke("journal", "ship", run=recorded.path).exit_code == 1
    assert unshipped(recorded) == 0
    assert "not shipped: The snapshot at 1 cannot be shipped: " in invoke("status", run=recorded.path).stderr


def test_position_stays_known_while_the_place_is_away(recorded: RunFolder, disk: Path) -> None:
    """Otherwise a shipper that starts meanwhile would report that nothing was shipped."""
    succeeded(invoke("journal", "ship", run=recorded.path))
    disk.rename(disk.with_name("away"))
    refused(invoke("journal", "ship", run=recorded.path), 2, "There is no folder", "deployment.journal.ship")
    assert unshipped(recorded) == 0
    assert "There is no folder" in invoke("status", run=recorded.path).stderr


def test_damaged_record_does_not_hide_what_is_not_shipped(recorded: RunFolder) -> None:
    loaded = load(recorded.path)
    journal = journal_of(recorded, loaded.deployment.journal)
    with closing(journal.reader()) as reader:
        archived = reader.archived
    recorded.shipping.parent.mkdir(exist_ok=True)
    recorded.shipping.write_bytes(msgspec.json.encode(ShippingState(str(loaded.ship), archived)))
    with closing(sqlite3.connect(recorded.journal, isolation_level=None)) as db:
        db.execute("UPDATE frames SET bodies = x'00' WHERE first = ?", (archived + 1,))
        storage = storage_of(recorded, loaded, journal)
        assert storage is not None
        assert storage.unshipped == EVENTS - archived
        db.execute("UPDATE frames SET head = x'00' WHERE first = (SELECT max(first) FROM frames)")
        assert storage_of(recorded, loaded, journal) is None


def test_other_history_is_refused_with_what_to_do(recorded: RunFolder) -> None:
    succeeded(invoke("journal", "ship", run=recorded.path))
    new = list(generated(EVENTS // 2, settings=hasty(), seed=3))
    recorded.journal.unlink()
    shutil.rmtree(recorded.path / "archive")
    write_generated(recorded.journal, new)
    refused(
        invoke("journal", "ship", run=recorded.path),
        1,
        f"this journal ends at {EVENTS // 2}",
        "deployment.journal.ship",
    )
    assert unshipped(recorded) == EVENTS // 2


def test_second_shipper_of_a_journal_is_refused(recorded: RunFolder) -> None:
    with locked(recorded.path / "archive" / "shipping"):
        refused(invoke("journal", "ship", run=recorded.path), 1, "Another process writes")


def test_signal_during_the_wait_requests_the_last_shipment(monkeypatch: pytest.MonkeyPatch) -> None:
    alarms = list[int]()
    monkeypatch.setattr(signal, "alarm", alarms.append)
    stop, current = Stop(), Stop()
    former = signal.signal(signal.SIGUSR1, lambda *_: current.set())  # pytest-timeout uses SIGALRM
    try:
        for _ in range(20):  # each keeps a pipe open
            current = Stop()
            threading.Timer(0.001, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            assert current.wait(60)
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert alarms == [LAST_SECONDS] * 20
    assert current.wait(0)
    assert not stop.wait(0)


def test_request_without_an_answer_does_not_outlive_the_broker(recorded: RunFolder) -> None:
    pytest.importorskip("s3fs")
    command = python_module("flyball.app.cli", "--run", str(recorded.path), "journal", "ship", "--supervised")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(120)
        url = f"s3://bucket/run?endpoint_url=http://127.0.0.1:{silent.getsockname()[1]}"
        recorded.settings.write_text(f'[deployment.journal]\nship = "{url}"\n')
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | CREDENTIALS) as process:
            try:
                with silent.accept()[0]:
                    process.stdin.close()
                    assert process.wait(timeout=50) == -signal.SIGALRM  # an answer is awaited for a minute
            finally:
                process.kill()
