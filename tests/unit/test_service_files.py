"""The files for systemd and supervisord name every daemon, and are what those programs read."""

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from app.cli.group import EXIT_CODES
from daemons.registry import DAEMONS

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "flyball@.service"
TARGET = DEPLOY / "flyball.target"


def unit(path: Path) -> dict[str, dict[str, list[str]]]:
    """Read a unit: keys may be repeated, which configparser refuses."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            section.setdefault(key, []).append(value)
    return sections


def test_the_target_wants_every_daemon() -> None:
    assert unit(TARGET)["Unit"]["Wants"] == [f"flyball@{name}.service" for name in DAEMONS]


def test_the_service_is_watched_and_restarted() -> None:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    service = parser["Service"]
    assert service["Type"] == "notify"
    assert service["WatchdogSec"] == "30"
    assert service["Restart"] == "always"
    assert service["ExecStart"].endswith("flyball daemon run %i")
    assert set(service["RestartPreventExitStatus"].split()) == {
        str(EXIT_CODES["BadSettings"]),
        str(EXIT_CODES["UnknownDaemon"]),
    }


def test_the_service_leaves_out_what_kills_numpy_and_torch() -> None:
    assert unit(UNIT)["Service"].keys().isdisjoint({"SystemCallFilter", "MemoryDenyWriteExecute", "PrivateDevices"})


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    (tmp_path / TARGET.name).write_text(TARGET.read_text())
    (tmp_path / UNIT.name).write_text(UNIT.read_text().replace("/opt/flyball/bin/flyball", "/bin/true"))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "./flyball.target", "./flyball@broker.service"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_supervisord_runs_every_daemon() -> None:
    parser = ConfigParser(interpolation=None)
    parser.read(DEPLOY / "supervisord.conf")
    assert parser["group:flyball"]["programs"].split(",") == list(DAEMONS)
    for name in DAEMONS:
        program = parser[f"program:{name}"]
        assert program["command"] == f"flyball daemon run {name}"
        assert (program["stopsignal"], program["autorestart"], program["exitcodes"]) == ("TERM", "unexpected", "2,4")
    first = min(DAEMONS, key=lambda name: int(parser[f"program:{name}"]["priority"]))
    assert first == "broker"
