"""Commands that talk to a real broker in its own process."""

import asyncio
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from bus_rig import FLYBALL, broker_daemon
from click.testing import Result
from commands import Flyball, refused, succeeded
from driving import KEY, NEW, OLD, promoted

from flyball.app.api.runs import is_listening
from flyball.app.bus import ZmqBus
from flyball.app.config import Deployment, RunFolder
from flyball.app.events import Event, ModelRolledBack, Payload, RollbackRequested, encode
from flyball.app.events.frames import DeadLetter
from flyball.app.journal import SqliteJournalReader, history
from flyball.app.status.summary import short
from flyball.daemons.run_folder import bus_endpoint

PARITY = {"request_id": "r", "worker": None, "shard": "c" * 64}
TICK = ("CLOCK_TICK", '{"period_seconds": 60}')


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Path]:
    """Run a broker, and return its run folder."""
    with broker_daemon(tmp_path):
        yield tmp_path


def recorded(folder: Path, source: str) -> list[Event[Any]]:
    with closing(SqliteJournalReader(folder / "journal.sqlite")) as reader:
        return [event for event in history(reader) if event.source == source]


def test_emit_records_each_id_once_and_continues_a_trace(
    broker: Path, flyball: Flyball, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = succeeded(flyball("emit", *TICK, "--count", 3))
    events = recorded(broker, "cli@laptop")
    assert [line.split() for line in result.stdout.splitlines()] == [[str(e.sequence), e.id] for e in events]
    assert len({event.id for event in events}) == 3
    told = json.loads(flyball("emit", *TICK, "--json").stdout)
    assert told == {"position": events[-1].sequence + 1, "id": recorded(broker, "cli@laptop")[-1].id}

    first = flyball("emit", *TICK, "--id", "mine")
    position, event_id = first.stdout.split()
    assert (first.exit_code, event_id, "recorded before" in first.stderr) == (0, "mine", False)
    again = flyball("emit", *TICK, "--id", "mine")
    assert again.stdout == first.stdout
    assert "Already recorded" in again.stderr
    stopped = ("DAEMON_STOPPED", '{"daemon": "a", "node": "a", "position": 9}')
    for other in (("CLOCK_TICK", '{"period_seconds": 61}'), stopped):
        taken = flyball("emit", *other, "--id", "mine")
        refused(taken, 1, "The id mine is taken: CLOCK_TICK")
        assert f"position {position}" in taken.stderr
    assert [event.id for event in recorded(broker, "cli@laptop")[4:]] == ["mine"]

    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    flyball("emit", *TICK, "--traceparent", caller)
    monkeypatch.setenv("TRACEPARENT", caller)
    flyball("emit", *TICK)
    assert [event.envelope.traceparent for event in recorded(broker, "cli@laptop")[5:]] == [caller] * 2
    refused(flyball("emit", *TICK, "--traceparent", caller[:-1]), 2, "is no trace context")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("RUN_CONFIGURED", '{"run_id": "r", "settings": {}}'), "Only the broker publishes RUN_CONFIGURED"),
        (("RUN_CONFIGURED", '{"run_id": "r", "settings": {}}', "--dry-run"), "Only the broker publishes"),
        (("EVENT_VOIDED", '{"position": 1, "reason": "dislike"}', "--dry-run"), " journal repair --void"),
        (("CLOCK_TICK", '{"period_seconds": "60"}', "--dry-run"), "The data does not fit CLOCK_TICK"),
        (("PARITY_CHECKED", json.dumps(PARITY | {"checked": "3", "failures": 0}), "--dry-run"), "does not fit PARITY"),
        (("PARITY_CHECKED", json.dumps(PARITY | {"checked": 3, "failures": 4}), "--dry-run"), "does not fit PARITY"),
    ],
)
def test_emit_of_what_is_not_published_by_hand_is_refused(flyball: Flyball, words: tuple[str, ...], said: str) -> None:
    refused(flyball("emit", *words), 2, said)


def test_repair_lists_a_failed_event_and_voids_it(broker: Path, flyball: Flyball) -> None:
    position, event_id = flyball("emit", *TICK).stdout.split()
    refused(flyball("journal", "repair", "--void", position, "--reason", "dislike"), 4, "")
    assert flyball("journal", "repair", "--void", position).exit_code == 2
    assert "No failed events" in flyball("journal", "repair").stderr
    (event,) = recorded(broker, "cli@laptop")
    bury(broker, DeadLetter(int(position), event.source, "feedback@laptop/LossWatch", "boom", encode(event.envelope)))
    (row,) = map(json.loads, flyball("journal", "repair", "--json").stdout.splitlines())
    assert row == {
        "position": int(position),
        "event": "CLOCK_TICK",
        "by": "feedback@laptop/LossWatch",
        "error": "boom",
        "voided": None,
    }
    assert "1 events could not be read or folded" in flyball("status").stderr
    assert json.loads(flyball("status", "--json").stdout)["unfolded"] == [int(position)]

    succeeded(flyball("journal", "repair", "--void", position, "--reason", "a bad tick"))
    (_, void) = recorded(broker, "cli@laptop")
    assert (void.data.position, void.data.reason, void.envelope.causationid) == (int(position), "a bad tick", event_id)
    assert json.loads(flyball("journal", "repair", "--json").stdout)["voided"] == "a bad tick"
    assert "EVENT_VOIDED" in flyball("trace", event_id).stdout
    assert json.loads(flyball("status", "--json").stdout)["unfolded"] == []
    again = flyball("journal", "repair", "--void", position, "--reason", "once more")
    assert (again.exit_code, len(recorded(broker, "cli@laptop"))) == (0, 2)
    assert "voided before" in again.stderr


def bury(folder: Path, dead: DeadLetter) -> None:
    async def tell() -> None:
        bus = ZmqBus(bus_endpoint(RunFolder(folder), Deployment()), producer="feedback@laptop", deadline_s=20)
        await bus.bury(dead)
        await bus.close()

    asyncio.run(tell())


def test_a_rollback_from_a_model_that_is_not_current_is_refused(broker: Path, flyball: Flyball) -> None:
    def emit(payload: Payload, *words: str) -> Result:
        return flyball("emit", payload.event_name, payload.model_dump_json(), "--config-key", KEY, *words)

    back = ModelRolledBack(from_model=NEW, to_model=OLD, step=0, reason="worse")
    refused(emit(back), 2, "none yet")
    for payload in (promoted(OLD), promoted(NEW)):
        assert emit(payload).exit_code == 0
    first = succeeded(emit(back, "--id", "mine"))
    refused(emit(back), 2, f"the current model of {KEY} is {OLD}")
    assert emit(back, "--id", "mine").stdout == first.stdout, "it is not recorded again"
    assert [event.data for event in recorded(broker, "cli@laptop")][2:] == [back]
    newest = "d" * 64
    assert emit(promoted(newest)).exit_code == 0
    refused(emit(RollbackRequested(model=OLD, reason="late")), 2, f"model is {OLD}, but the current model of {KEY} is")
    assert emit(RollbackRequested(model=newest, reason="worse")).exit_code == 0
    assert flyball("replay", "MODEL_ROLLED_BACK", "--yes", "--reason", "by mistake").exit_code == 0
    again = emit(back.replace(from_model=newest))
    assert again.exit_code == 0, "what was published again has changed nothing"


def test_emit_takes_hashes_as_they_are_shown(broker: Path, flyball: Flyball) -> None:
    def emit(model: str, *words: str) -> Result:
        data = json.dumps({"model": model, "reason": "worse"})
        return flyball("emit", RollbackRequested.event_name, data, "--config-key", KEY, *words)

    twins = [f"{short(NEW)}{digit * 56}" for digit in "12"]
    for model in (OLD, NEW, twins[0]):
        assert flyball("emit", "MODEL_PROMOTED", promoted(model).model_dump_json(), "--config-key", KEY).exit_code == 0
    refused(emit(short(NEW)), 2, f"2 models' hashes begin with {short(NEW)}")
    refused(emit("0" * 8), 2, "No known model's hash begins with 00000000")
    refused(emit("0" * 7), 2, "does not fit ROLLBACK_REQUESTED")
    refused(emit(OLD[:12]), 2, f"model is {OLD}, but the current model")
    assert emit(twins[0][:9]).exit_code == 0
    assert [event.data.model for event in recorded(broker, "cli@laptop")][3:] == [twins[0]]


def test_the_same_replay_is_recorded_once(broker: Path, flyball: Flyball) -> None:
    flyball("emit", *TICK, "--count", 2)
    originals = recorded(broker, "cli@laptop")
    words = ("replay", "CLOCK_TICK", "--yes", "--from", originals[0].sequence, "--to", originals[1].sequence)
    first = succeeded(flyball(*words, "--reason", "lost", "--speed", 1000, "--json"))
    replayed = recorded(broker, "cli@laptop")[2:]
    assert [event.envelope.causationid for event in replayed] == [event.id for event in originals]
    assert [event.data for event in replayed] == [event.data for event in originals]
    assert flyball(*words, "--reason", "lost", "--json").stdout == first.stdout
    assert len(recorded(broker, "cli@laptop")) == 4
    assert flyball(*words, "--reason", "another").exit_code == 0
    assert len(recorded(broker, "cli@laptop")) == 6


def test_broker_is_followed_by_tail_and_not_started_twice(broker: Path, flyball: Flyball) -> None:
    refused(flyball("up"), 1, "listens at")
    second = subprocess.run(
        (*FLYBALL, "--run", str(broker), "daemon", "run", "broker"), capture_output=True, text=True, check=False
    )
    assert second.returncode == 1
    assert "Another process writes" in second.stderr
    command = (*FLYBALL, "--run", str(broker), "tail", "-f", "--since", "1", "--json", "CLOCK_TICK", "RUN_CONFIGURED")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert json.loads(tail.stdout.readline())["type"] == "flyball.run.configured"
        position, event_id = flyball("emit", *TICK).stdout.split()
        event = next(event for event in map(json.loads, tail.stdout) if event["id"] == event_id)
        assert int(event["sequence"]) == int(position)
        tail.send_signal(signal.SIGINT)
        assert tail.stderr.read() == ""
    assert tail.returncode == 0


def test_a_broker_that_never_answers_is_a_timeout(tmp_path: Path, flyball: Flyball) -> None:
    endpoint = bus_endpoint(RunFolder(tmp_path), Deployment())
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(endpoint.removeprefix("ipc://"))
        deaf.listen()
        result = flyball("emit", *TICK, "--timeout", "0.2", "--id", "mine")
        many = flyball("emit", *TICK, "--timeout", "0.2", "--count", "5")
    assert (result.exit_code, many.exit_code) == (5, 5)
    assert "did not acknowledge mine within 0.2 s" in result.stderr
    assert "under the same id" in result.stderr
    assert " and 2 more within" in many.stderr


def test_a_daemon_without_a_broker_says_that_it_waits(tmp_path: Path) -> None:
    command = (*FLYBALL, "--run", str(tmp_path), "daemon", "run", "feedback")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        process.kill()
    assert said.startswith("Waiting for a broker at ipc://")
    assert f"flyball --run {tmp_path} daemon run broker" in said


@pytest.mark.parametrize("endpoint", ["ipc:///nowhere/bus.sock", "tcp://127.0.0.1:1", "tcp://[::1]:1"])
def test_nobody_listens(endpoint: str) -> None:
    assert not is_listening(endpoint)
