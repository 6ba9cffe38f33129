"""Files for systemd and supervisord: complete, and accepted by both programs."""

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from flyball.app.cli.group import EXIT_CODES
from flyball.daemons.registry import MACHINE_ROLES, ON_ALL_MACHINES, MachineRole, names_of

DEPLOY = Path(__file__).parents[2] / "deploy"
SYSTEMD, SUPERVISOR = DEPLOY / "systemd", DEPLOY / "supervisor"
TEMPLATES = {"head": "flyball@", "worker": "flyball-worker@"}
HOPELESS = {str(EXIT_CODES["usage"]), str(EXIT_CODES["unknown"])}


def unit(name: str) -> dict[str, dict[str, list[str]]]:
    """Read a systemd unit with repeated keys, which configparser refuses."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in (SYSTEMD / name).read_text().splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            section.setdefault(key, []).append(value)
    return sections


def test_roles_share_all_daemons_and_the_broker_is_the_heads() -> None:
    assert {*names_of("head"), *names_of("worker")} == {*names_of(None)}
    assert {*names_of("head")} & {*names_of("worker")} == ON_ALL_MACHINES
    assert names_of("head")[0] == "broker"
    assert set(names_of("worker")) == {"selfplay_worker", "quality_monitor", "training", "evaluation", "distribution"}


@pytest.mark.parametrize("role", MACHINE_ROLES)
def test_target_wants_every_daemon_of_its_role(role: MachineRole) -> None:
    wanted = unit(f"flyball-{role}.target")["Unit"]["Wants"]
    template = {name: "flyball@" if name in ON_ALL_MACHINES else TEMPLATES[role] for name in names_of(role)}
    dashboard = ["flyball-dashboard.service"] if role == "head" else []
    assert wanted == [f"{template[name]}{name}.service" for name in names_of(role)] + dashboard


@pytest.mark.parametrize("role", MACHINE_ROLES)
def test_service_is_watched_and_restarted(role: MachineRole) -> None:
    read = unit(f"{TEMPLATES[role]}.service")
    service = read["Service"]
    assert read["Unit"]["PartOf"] == [f"flyball-{role}.target"]
    assert read["Unit"]["StartLimitIntervalSec"] == ["0"]
    assert [service[key] for key in ("Type", "WatchdogSec", "Restart")] == [["notify"], ["30"], ["always"]]
    assert service["ExecStart"] == ["/opt/flyball/bin/flyball daemon run %i"]
    assert set(service["RestartPreventExitStatus"][0].split()) == HOPELESS


@pytest.mark.parametrize("role", MACHINE_ROLES)
def test_service_leaves_out_what_kills_numpy_and_compilers(role: MachineRole) -> None:
    service = unit(f"{TEMPLATES[role]}.service")["Service"]
    assert "MemoryDenyWriteExecute" not in service
    assert service["SystemCallFilter"] == ["@system-service"]  # which includes @resources


def test_services_differ_in_devices_only() -> None:
    head, worker = (unit(f"{template}.service")["Service"] for template in TEMPLATES.values())
    assert head == worker | {"PrivateDevices": ["yes"], "ProtectClock": ["yes"]}
    devices = {"PrivateDevices", "ProtectClock", "DevicePolicy", "DeviceAllow"}
    assert unit("flyball-worker@.service")["Service"].keys().isdisjoint(devices)
    daemon, dashboard = unit("flyball@.service"), unit("flyball-dashboard.service")
    start = {"ExecStart": ["/opt/flyball/bin/flyball dashboard --wait"]}
    assert dashboard["Service"] == daemon["Service"] | start
    assert dashboard["Unit"] == daemon["Unit"] | {"Description": ["Flyball dashboard"]}
    assert dashboard["Install"] == daemon["Install"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for path in SYSTEMD.iterdir():
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/flyball/bin/flyball", "/bin/true"))
    targets = [f"./flyball-{role}.target" for role in MACHINE_ROLES]
    verified = subprocess.run(
        ["systemd-analyze", "verify", *targets], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    dropped = "flyball@broker.service: Dependency After=flyball@broker.service is dropped."
    assert (verified.returncode, verified.stderr.strip()) == (0, dropped)


@pytest.mark.parametrize("role", MACHINE_ROLES)
def test_supervisord_runs_every_daemon_of_a_role(role: MachineRole) -> None:
    parser = ConfigParser(interpolation=None)
    parser.read(SUPERVISOR / f"{role}.conf")
    names = names_of(role)
    grouped = parser[f"group:{role}"]["programs"].split(",")
    others = ["dashboard"] if role == "head" else []
    assert grouped == [name for name in names if name != "broker"] + others
    assert {"unix_http_server", "rpcinterface:supervisor", "supervisorctl"} <= set(parser.sections())
    for name in (*names, *others):
        program, run = parser[f"program:{name}"], f"daemon run {name}" if name in names else "dashboard --wait"
        assert program["command"] == f'/bin/sh -c "sleep 1; exec flyball {run}"'
        assert program["stderr_logfile"].endswith(f"/logs/{name}.stderr")
        assert program["startsecs"] == "0", "otherwise exit codes do not count in the first seconds"
        assert (program["stopsignal"], program["autorestart"]) == ("TERM", "unexpected")
        assert set(program["exitcodes"].split(",")) == HOPELESS
    if role == "head":  # groups stop one after the other
        assert int(parser["program:broker"]["priority"]) < int(parser["group:head"]["priority"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
@pytest.mark.parametrize("name", ["flyball@", "flyball-worker@", "flyball-dashboard"])
def test_services_are_exposed_to_at_most_2_5_of_10(name: str) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=25", f"./{name}.service"]
    assert subprocess.run(command, cwd=SYSTEMD, capture_output=True, check=False).returncode == 0
