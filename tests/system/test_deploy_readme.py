"""The commands of deploy/README.md, in order, on three machines. The machines run real systemd."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from systemd_machine import RUN, USER, Machine, light_games, missing, network, systemd_machine

from flyball.app.events import (
    AccessRefused,
    DaemonReady,
    DaemonStopped,
    EvaluationCompleted,
    ModelPromoted,
    Payload,
    SelfplayComplete,
    TrainingCompleted,
)
from flyball.daemons.registry import names_of

PAGE = (Path(__file__).parents[2] / "deploy" / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [re.fullmatch(r"(\w+)([$#]) (.+)", line).groups() for block in BLOCKS for line in block.split("\n") if line]
NAMES = ("head", "node1", "node2")
KEY = re.compile(r"its public key is ([0-9a-f]{64})")


def test_three_machines_take_ten_commands() -> None:
    assert len([line for line in BLOCKS[0].splitlines() if line]) == 10
    assert {machine for machine, _, _ in COMMANDS} == set(NAMES)


def test_settings_of_the_page_can_be_loaded(tmp_path: Path) -> None:
    from flyball.app.config.loading import load

    (block,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "flyball.toml").write_text(block)
    assert load(tmp_path).deployment.processes.selfplay == 14


class Cluster:
    """Three machines, by name, and the keys that commands have printed."""

    def __init__(self, machines: dict[str, Machine]) -> None:
        self.machines = machines
        self._keys = dict[str, str]()

    def type_in(self, name: str, prompt: str, command: str) -> str:
        """Run a command of the page as its prompt says. Keys are inserted in place of their names."""
        for key, text in self._keys.items():
            command = command.replace(key, text)
        printed = self.machines[name].run("bash", "-c", command, user=USER if prompt == "$" else "root")
        if found := KEY.search(printed):
            self._keys[f"{name.upper()}_KEY"] = found[1]
            if name == "head":
                light_games(self.machines[name])
        return printed

    def recorded(self, *payloads: type[Payload]) -> list[dict[str, Any]]:
        """Return the recorded events of some types."""
        names = [payload.event_name for payload in payloads]
        lines = self.machines["head"].run("flyball", "tail", *names, "-n", "10000", "--json", user=USER)
        return [json.loads(line) for line in lines.splitlines()]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start three machines with a switch and a shared folder."""
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("machines")
    with ExitStack() as stack:
        machines = {
            name: stack.enter_context(systemd_machine(name, folder / name, folder / "shared")) for name in NAMES
        }
        network(*machines.values())
        yield Cluster(machines)


def closed(cluster: Cluster) -> bool:
    return any(event["data"]["step"] > 0 for event in cluster.recorded(ModelPromoted))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_commands_of_the_page_work_on_three_machines(cluster: Cluster) -> None:
    """Close loops with the workers' jobs, which share the store. Then a node is revoked and replaced."""
    ten = len([line for line in BLOCKS[0].splitlines() if line])
    printed = [cluster.type_in(*command) for command in COMMANDS[:ten]]
    status = printed[8]
    ready = {(event["data"]["daemon"], event["data"]["node"]) for event in cluster.recorded(DaemonReady)}
    workers = {(name, node) for name in names_of("worker") for node in NAMES[1:]}
    assert ready == {(name, "head") for name in names_of("head")} | workers
    assert all(name in status for name in names_of(None)), "from a machine without the journal"
    head = cluster.machines["head"]
    head.wait_for("a promotion", lambda: closed(cluster), 900)
    sources = {event["source"] for event in cluster.recorded(SelfplayComplete, TrainingCompleted, EvaluationCompleted)}
    assert {source.partition("@")[2] for source in sources} <= {"node1", "node2"}
    for command in COMMANDS[ten:]:
        cluster.type_in(*command)
    assert any("node2" in json.dumps(event["data"]) for event in cluster.recorded(AccessRefused))
    assert {event["data"]["node"] for event in cluster.recorded(DaemonStopped)} == set(NAMES)
    again = [event["data"]["node"] for event in cluster.recorded(DaemonReady)]
    assert again.count("node2") >= 3 * len(names_of("worker")), "started, stopped and started, revoked and replaced"
    assert cluster.machines["node2"].run("systemctl", "is-active", "flyball-worker.target").strip() == "active"
    assert head.path(f"{RUN}/backup.sqlite").stat().st_size > 0
