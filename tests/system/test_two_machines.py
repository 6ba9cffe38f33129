"""The commands of "Two heads" in ADR/guide/operating.md, in order, on two machines with real systemd and PostgreSQL."""

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from postgres_server import new_schema, postgres_server
from systemd_machine import RUN, USER, Machine, light_games, missing, network, systemd_machine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(missing()), reason=missing() or "a machine can be started"),
]

PAGE = (Path(__file__).parents[2] / "ADR/guide/operating.md").read_text(encoding="utf-8")
ADDRESSES = {"head1": "10.0.0.1", "head2": "10.0.0.2"}
BLOCKS = [
    [re.fullmatch(r"(\w+)([$#]) (.+)", line).groups() for line in block.splitlines()]
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    if block.startswith("head")
]
SET_UP, LOOK, SWITCH, REPLACE, BOTH_AWAY = BLOCKS


class Heads:
    """Two machines, by name, and what stands for URL and STORE in the page's commands."""

    def __init__(self, machines: dict[str, Machine], url: str) -> None:
        self.machines, self._values = machines, {"URL": url, "STORE": "/srv/flyball/store"}

    def type_in(self, name: str, prompt: str, command: str) -> str:
        """Run a command of the page as its prompt says, in the user's home. Without ssh, scp's files are copied."""
        machine = self.machines[name]
        for word, value in self._values.items():
            command = command.replace(word, value)
        if "scp" in command:
            other = self.machines["head1" if name == "head2" else "head2"]
            machine.run("mkdir", f"{RUN}/first")
            shutil.copy(other.path(f"{RUN}/flyball.toml"), machine.path(f"{RUN}/first"))
            shutil.copytree(other.path(f"{RUN}/keys"), machine.path(f"{RUN}/first/keys"))
            return machine.run("chown", "--recursive", f"{USER}:", f"{RUN}/first")
        printed = machine.run("bash", "-c", f"cd {RUN}; {command}", user=USER if prompt == "$" else "root", check=False)
        if "--role head" in command:
            light_games(machine)
        return printed

    def type_all(self, block: list[tuple[str, str, str]]) -> list[str]:
        """Run the commands of a block; return what they printed."""
        return [self.type_in(*command) for command in block]

    def wait_for(self, name: str, status: str) -> None:
        """Wait until a head's broker says what it does."""
        machine = self.machines[name]
        machine.wait_for(status, lambda: machine.property("flyball@broker", "StatusText") == status)

    def check_serves(self, name: str) -> None:
        """Check that a head serves with all its daemons, and the other one waits."""
        (other,) = ADDRESSES.keys() - {name}
        self.wait_for(name, f"serving tcp://{ADDRESSES[name]}:7400")
        self.wait_for(other, f"standing by for tcp://{ADDRESSES[name]}:7400")
        machine = self.machines[name]
        for unit in ("flyball@feedback", "flyball-dashboard"):
            machine.wait_for(unit, lambda unit=unit: machine.property(unit, "ActiveState") == "active")
        assert self.machines[other].property("flyball@broker", "ActiveState") == "activating"


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Heads]:
    """Start two machines with a switch, and a database and a store in a folder that both have."""
    folder = tmp_path_factory.mktemp("heads")
    with ExitStack() as stack:
        shared = Path(
            stack.enter_context(TemporaryDirectory(prefix="flyball-heads-"))
        )  # which the server's user reaches
        machines = {name: stack.enter_context(systemd_machine(name, folder / name, shared)) for name in ADDRESSES}
        network(*machines.values())
        url = new_schema(stack.enter_context(postgres_server(folder=shared / "db")).url)
        machines["head1"].run("install", "--directory", f"--owner={USER}", "/srv/flyball/store")
        yield Heads(machines, url.replace(str(shared), "/srv/flyball"))


def test_commands_of_the_guide_work_on_two_heads(heads: Heads) -> None:
    heads.type_all(SET_UP)
    heads.check_serves("head1")
    status, findings = heads.type_all(LOOK)
    assert status == "serving tcp://10.0.0.1:7400\n"
    assert "standby-missing" not in findings

    heads.type_all(SWITCH[:2])
    heads.wait_for("head2", "serving tcp://10.0.0.2:7400")
    assert "standby-missing  tcp://10.0.0.1:7400" in heads.type_in("head2", *LOOK[1][1:])
    assert heads.type_all(SWITCH[2:])[0] == "serving tcp://10.0.0.2:7400\n"
    heads.check_serves("head2")

    heads.type_in("head1", "#", f"systemctl stop 'flyball*'; rm -r {RUN}/* /etc/systemd/system/flyball*")
    heads.type_all(REPLACE)
    heads.check_serves("head2")

    for name in ("head1", "head2"):
        heads.type_in(name, "#", "systemctl kill --signal=KILL 'flyball*'; systemctl stop 'flyball*'")
    heads.type_all(BOTH_AWAY)
    first = heads.machines["head1"]
    first.wait_for(
        "a head", lambda: "standby-missing" not in (found := heads.type_in(*BOTH_AWAY[-1])) and "critical" not in found
    )
    serving = {machine.property("flyball@broker", "StatusText").split()[0] for machine in heads.machines.values()}
    assert serving == {"serving", "standing"}
