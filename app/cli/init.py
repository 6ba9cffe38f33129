"""``flyball init``: settings, keys and service files for a cluster's machine."""

import getpass
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from typing import Literal

import click

from flyball.app.api.commands import flyball_anywhere
from flyball.app.bus.keys import Key, KeyList, KeyPair, check_name, check_public, new_pair, write_secret
from flyball.app.cli.keys import ALLOWED
from flyball.app.cli.options import FOLDER, json_option
from flyball.app.cli.output import echo, note, write_json
from flyball.app.config import RunFolder
from flyball.app.core import BadUsage, writing
from flyball.app.core.shipped import shipped
from flyball.daemons.registry import MACHINE_ROLES, MachineRole, names_of

ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:(?P<port>\d{1,5}))?")
PORT = 7400
"""Port of the head's broker if the address has none."""

PLAIN_PATH = re.compile(r"/[A-Za-z0-9/._+@:-]*")
"""Paths that TOML, systemd and supervisord read without quoting."""

Services = Literal["systemd", "supervisor"]
FILES: Mapping[tuple[Services, MachineRole], tuple[str, ...]] = {
    ("systemd", "head"): (
        "flyball@.service",
        "flyball-head.target",
        "flyball-dashboard.service",
        "flyball-worker@.service",
        "flyball-worker.target",
    ),
    ("systemd", "worker"): ("flyball@.service", "flyball-worker@.service", "flyball-worker.target"),
    ("supervisor", "head"): ("head.conf", "worker.conf", "crash_loops.py"),
    ("supervisor", "worker"): ("worker.conf", "crash_loops.py"),
}
"""The service files of each role; a head can also run jobs."""

SETTINGS = """\
# Written by `flyball init`. All settings: flyball config show
# configs = ["connect_four_2p"]   # on the head: what is played; set above all tables
[deployment]
{deployment}
[deployment.keys]
{keys}"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine to set up.

    Attributes:
        role: what it is for.
        node: its name, and that of its key.
        folder: its run folder, absolute.
        head: HOST:PORT of the broker.
        head_key: the head's public key; ``None`` on the head itself.
        store: where models and shards are; ``None``: in the run folder.
    """

    role: MachineRole
    node: str
    folder: Path
    head: str
    head_key: str | None
    store: str | None


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option(
    "--role",
    type=click.Choice(MACHINE_ROLES),
    required=True,
    help="head: the one machine with the broker; worker: any other.",
)
@click.option(
    "--head",
    required=True,
    metavar="HOST[:PORT]",
    help=f"Address at which workers reach the head; default port {PORT}.",
)
@click.option("--head-key", metavar="KEY", help="For a worker: the head's public key.")
@click.option("--node", metavar="NAME", help="Name of this machine.  [default: the host's]")
@click.option(
    "--store", metavar="URL", help="Models and shards: a folder that all machines share, or s3://BUCKET/PATH."
)
@click.option(
    "--services", type=click.Choice(["systemd", "supervisor"]), default="systemd", help="Supervisor of the daemons."
)
@json_option
def init(
    folder: Path,
    *,
    role: MachineRole,
    head: str,
    head_key: str | None,
    node: str | None,
    store: str | None,
    services: Services,
    as_json: bool,
) -> None:
    """Prepare DIR as the run folder of a cluster's machine.

    The command writes settings, a key, and service files. No file is overwritten. The daemons will run as the calling
    user. Prints the next commands for each machine.
    """
    if (role == "worker") != (head_key is not None):
        what = "A worker needs --head-key" if role == "worker" else "--head-key is for workers"
        raise BadUsage(f"{what}.", hint="`flyball init --role head` prints the command for workers, with the key.")
    machine = Machine(
        role,
        check_name(node or gethostname().partition(".")[0]),
        _plain_path(folder.absolute()),
        _address(head),
        head_key and check_public(head_key),
        store,
    )
    settings, secret = RunFolder(machine.folder).settings, RunFolder(machine.folder).keys / f"{machine.node}.secret"
    files = service_files(machine, services)
    _refuse_existing(settings, secret, *files)
    pair = new_pair()
    _write_keys(machine, secret, pair)
    for path, text in {settings: settings_text(machine), **files}.items():
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    RunFolder(machine.folder).log("any").parent.mkdir(exist_ok=True)  # supervisord makes no folders
    following = _next_commands(machine, services, pair.public)
    if machine.store and machine.store.startswith("/"):
        _warn_of_store(machine, machine.store)
    if as_json:
        files_json = {"settings": str(settings), "secret": str(secret), "services": [str(path) for path in files]}
        write_json({"role": role, "node": machine.node, "public": pair.public, **files_json, "next": following})
        return
    echo(f"{machine.node} is a {role} in {machine.folder}; its public key is {pair.public}")
    for where, commands in following.items():
        echo(f"\n{where}:\n" + "\n".join(f"  {command}" for command in commands))


def _warn_of_store(machine: Machine, store: str) -> None:
    """Warn on stderr of a store that cannot be written yet. The store may be mounted later."""
    from flyball.app.store.objects import UnusableStore
    from flyball.app.store.opening import check_folder

    try:
        check_folder(store)
    except UnusableStore as error:
        note(f"WARNING: {error} {error.hint} Then look again: {flyball_anywhere(machine.folder, None)} config check")


def _plain_path(path: Path) -> Path:
    if not PLAIN_PATH.fullmatch(str(path)):
        raise BadUsage(f"{path} cannot be named in service files.", hint="Use letters, digits and /._+@:- in paths.")
    return path


def _address(text: str) -> str:
    """Return HOST:PORT. Raises ``BadUsage``."""
    match = ADDRESS.fullmatch(text)
    if not match or not 0 < int(match["port"] or PORT) < 1 << 16:
        raise BadUsage(f"{text!r} is no address.", hint="Write HOST or HOST:PORT; `hostname -I` shows this machine's.")
    return f"{match['host']}:{match['port'] or PORT}"


def _refuse_existing(*files: Path) -> None:
    if existing := [str(path) for path in files if path.exists()]:
        raise BadUsage(f"{', '.join(existing)} exists already.", hint="Choose another DIR, or move that away.")


def _write_keys(machine: Machine, secret: Path, pair: KeyPair) -> None:
    """Write the machine's secret key; on the head, admit it too."""
    if machine.role == "worker":
        write_secret(secret, pair)
        return
    allowed = secret.with_name(ALLOWED)
    admitted = KeyList.read(allowed).authorize(Key(machine.node, "head", pair.public))
    write_secret(secret, pair)
    admitted.write(allowed)


def settings_text(machine: Machine) -> str:
    """Return the text of the machine's ``flyball.toml``."""
    deployment = {"node": machine.node, "endpoint": f"tcp://{machine.head}"}
    if machine.store:
        deployment["store"] = machine.store
    keys = {"secret": f"keys/{machine.node}.secret"}
    keys |= {"broker": machine.head_key} if machine.head_key else {"allowed": f"keys/{ALLOWED}"}
    return SETTINGS.format(deployment=_toml(deployment), keys=_toml(keys))


def _toml(values: Mapping[str, str]) -> str:
    return "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items())


def service_files(machine: Machine, services: Services) -> dict[Path, str]:
    """Return the machine's service files, rendered from the packaged ones."""
    source, target = shipped("deploy", "deploy") / services, machine.folder / services
    program, folder = _plain_path(_program()), str(machine.folder)
    shared = [str(_plain_path(Path(machine.store)))] if machine.store and machine.store.startswith("/") else []
    changes = {
        "systemd": {
            "RequiresMountsFor=/var/lib/flyball": f"RequiresMountsFor={' '.join((folder, *shared))}",
            "ReadWritePaths=/var/lib/flyball": f"ReadWritePaths={' '.join((folder, *shared))}",
            "/opt/flyball/bin/flyball": str(program),
            "/var/lib/flyball": folder,
            "User=flyball": f"User={getpass.getuser()}",
            "%l": machine.node,
        },
        "supervisor": {
            "%(ENV_FLYBALL_RUN)s": folder,
            "exec flyball": f"exec {program}",
            "command=python3": f"command={_plain_path(Path(sys.executable))}",
        },
    }[services]
    files = {name: (source / name).read_text(encoding="utf-8") for name in FILES[services, machine.role]}
    if services == "supervisor" and machine.role == "head":
        files["worker.conf"] = _without_programs(files["worker.conf"], names_of("head"))
    return {target / name: _replaced(text, changes) for name, text in files.items()}


def _program() -> Path:
    """Return the path of this Python's ``flyball`` command, else of the one on the PATH. Raises ``BadUsage``."""
    beside = Path(sys.executable).with_name("flyball")
    program = str(beside) if beside.is_file() else shutil.which("flyball")
    if program is None:
        raise BadUsage("There is no flyball command to start.", hint="Install Flyball: pip install flyball")
    return Path(program).absolute()


def _without_programs(text: str, programs: Sequence[str]) -> str:
    """Return supervisord's configuration without some programs. None of these may be the first of its group."""
    sections = [part for part in text.split("\n[program:") if part.partition("]")[0] not in programs]
    for name in programs:
        sections[0] = sections[0].replace(f",{name}", "")
    return "\n[program:".join(sections)


def _replaced(text: str, changes: Mapping[str, str]) -> str:
    """Return a text with words replaced outside comments, because those explain the packaged file."""
    pattern = re.compile("|".join(map(re.escape, changes)))
    lines = text.splitlines(keepends=True)
    return "".join(
        line if line.startswith(("#", ";")) else pattern.sub(lambda match: changes[match[0]], line) for line in lines
    )


def _next_commands(machine: Machine, services: Services, public: str) -> dict[str, list[str]]:
    """Return the next commands, by machine."""
    authorize = f"{flyball_anywhere(machine.folder, None)} keys authorize"
    roles = MACHINE_ROLES if machine.role == "head" else ("worker",)
    if services == "systemd":
        targets = " ".join(f"flyball-{role}.target" for role in roles)
        install = f"sudo install -m 644 -t /etc/systemd/system {machine.folder}/systemd/*"
        start = [f"{install} && sudo systemctl enable --now {targets}"]
    else:
        start = [f"supervisord -c {machine.folder}/supervisor/{role}.conf" for role in roles]
    if machine.role == "worker":
        admit = f"{authorize} {machine.node} worker {public}"
        return {"On the head, whose run folder belongs after --run": [admit], "Then here": start}
    options = [f"--store {machine.store}"] if machine.store else []
    options += [f"--services {services}"] if services != "systemd" else []
    init = f"flyball init --role worker --head {machine.head} --head-key {public}"
    return {
        "Here, to record, decide and also run jobs": start,
        "On each worker": [" ".join((init, *options, str(machine.folder)))],
        "Then here, as that command prints": [f"{authorize} NODE worker ITS_PUBLIC_KEY"],
    }
