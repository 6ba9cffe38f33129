"""The units of deploy/systemd under real systemd, as `flyball init` writes them."""

import json
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from systemd_machine import RUN, USER, Machine, kill, light_games, missing, systemd_machine

from flyball.app.events import DaemonStopped, ModelPromoted, Payload
from flyball.daemons.registry import names_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing()), reason=missing() or "a machine can be started"),
]

HEAD = names_of("head")
DAEMONS = [f"flyball@{name}" if name in HEAD else f"flyball-worker@{name}" for name in names_of(None)]
UNITS = [*DAEMONS, "flyball-dashboard"]


def events(machine: Machine, payload: type[Payload]) -> list[dict[str, Any]]:
    """Return the data of a head's recorded events of a type."""
    lines = machine.run("flyball", "tail", payload.event_name, "-n", "10000", "--json", user=USER)
    return [json.loads(line)["data"] for line in lines.splitlines()]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Start a machine as head and worker. It runs the command that ``flyball init`` prints."""
    folder = tmp_path_factory.mktemp("machines")
    with systemd_machine("alpha", folder / "root", folder / "shared") as machine:
        printed = machine.run("flyball", "init", "--role", "head", "--head", "127.0.0.1", RUN, user=USER)
        light_games(machine)
        machine.path(f"{RUN}/flyball.env").write_text("FLYBALL_DEPLOYMENT__HEARTBEAT_SECONDS=1\n")
        (start,) = (line.strip() for line in printed.splitlines() if "systemctl enable --now" in line)
        machine.run("sh", "-c", start.replace("sudo ", ""))
        yield machine


def test_all_daemons_are_started_and_report_ready(head: Machine) -> None:
    assert [head.property(unit, "ActiveState") for unit in UNITS] == ["active"] * len(UNITS)
    assert head.property("flyball@feedback", "StatusText").startswith("caught up at ")
    assert head.property("flyball@broker", "StatusText") == "serving tcp://127.0.0.1:7400"
    targets = ("flyball-head.target", "flyball-worker.target")
    assert head.run("systemctl", "is-enabled", *targets).split() == ["enabled"] * 2
    assert f"{len(DAEMONS)} ready" in head.run("flyball", "status", user=USER)


def test_dashboard_answers_and_is_restarted_when_it_hangs(head: Machine) -> None:
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8417/docs').status)"
    head.wait_for("an answer", lambda: head.run(sys.executable, "-c", ask, check=False) == "200\n")
    kill(head, "flyball-dashboard", signal.SIGSTOP)
    head.wait_for("a restart", lambda: head.property("flyball-dashboard", "NRestarts") == "1")
    head.wait_for("it is ready", lambda: head.property("flyball-dashboard", "ActiveState") == "active")
    assert "Watchdog timeout" in head.run("journalctl", "--unit=flyball-dashboard")


def test_jobs_run_within_the_hardened_services(head: Machine) -> None:
    head.wait_for("a promotion", lambda: [e for e in events(head, ModelPromoted) if e["step"] > 0], 400)


def test_hanging_daemon_is_killed_by_the_watchdog_and_restarted(head: Machine) -> None:
    before = head.property("flyball@feedback", "MainPID")
    kill(head, "flyball@feedback", signal.SIGSTOP)
    head.wait_for("a restart", lambda: head.property("flyball@feedback", "NRestarts") == "1")
    head.wait_for("it is ready", lambda: head.property("flyball@feedback", "ActiveState") == "active")
    assert head.property("flyball@feedback", "MainPID") != before
    assert "Watchdog timeout" in head.run("journalctl", "--unit=flyball@feedback")
    assert head.property("flyball@broker", "NRestarts") == "0"


def test_crashed_daemon_is_restarted(head: Machine) -> None:
    kill(head, "flyball-worker@training", signal.SIGKILL)
    head.wait_for("a restart", lambda: head.property("flyball-worker@training", "NRestarts") == "1")
    head.wait_for("it is ready", lambda: head.property("flyball-worker@training", "ActiveState") == "active")


def test_daemon_with_wrong_settings_is_not_restarted(head: Machine) -> None:
    unit = "flyball@curves"
    head.path(f"{RUN}/wrong.toml").write_text("nonsense = 1\n")
    folder = head.path(f"/run/systemd/system/{unit}.service.d")
    folder.mkdir(parents=True)
    (folder / "wrong.conf").write_text(f"[Service]\nEnvironment=FLYBALL_CONFIG_FILE={RUN}/wrong.toml\n")
    head.run("systemctl", "daemon-reload")
    head.run("systemctl", "restart", unit, check=False)
    head.wait_for("the failure", lambda: head.property(unit, "ActiveState") == "failed")
    assert (head.property(unit, "ExecMainStatus"), head.property(unit, "NRestarts")) == ("2", "0")
    (folder / "wrong.conf").unlink()
    head.run("systemctl", "daemon-reload")
    head.run("systemctl", "start", unit)


DEVICE = """[Service]
Type=oneshot
NotifyAccess=none
RemainAfterExit=no
Restart=no
ExecStart=
ExecStart=/bin/sh -c "exec 3<>/dev/nvidia0"
"""


@pytest.mark.parametrize(("protected", "result"), [("", "success"), ("PrivateDevices=yes\n", "exit-code")])
def test_worker_service_may_open_a_device(head: Machine, protected: str, result: str) -> None:
    """Open a device, which PrivateDevices would forbid. The head's services have PrivateDevices."""
    if not head.path("/dev/nvidia0").exists():
        head.run("mknod", "--mode=666", "/dev/nvidia0", "c", "10", "229")  # /dev/fuse, for there is no GPU
    folder = head.path("/run/systemd/system/flyball-worker@device.service.d")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "device.conf").write_text(DEVICE + protected)
    head.run("systemctl", "daemon-reload")
    head.run("systemctl", "start", "flyball-worker@device", check=False)
    assert head.property("flyball-worker@device", "Result") == result, head.log()


def test_stop_ends_in_time_with_drained_daemons(head: Machine) -> None:
    """End the broker last. If it is slow, the others' outboxes keep unrecorded events for the next start."""
    before = len(events(head, DaemonStopped))
    head.run("systemctl", "stop", "flyball*")
    assert {unit: head.property(unit, "Result") for unit in UNITS} == dict.fromkeys(UNITS, "success")
    assert {head.property(unit, "ActiveState") for unit in UNITS} == {"inactive"}
    ended = {unit: int(head.property(unit, "InactiveEnterTimestampMonotonic")) for unit in UNITS}
    assert max(ended, key=lambda unit: ended[unit]) == "flyball@broker"
    head.run("systemctl", "start", "flyball-head.target", "flyball-worker.target")
    names = {*names_of(None)}
    head.wait_for("last events", lambda: names == {data["daemon"] for data in events(head, DaemonStopped)[before:]})
