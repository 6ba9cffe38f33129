"""``flyball init``: settings, keys and service files for a cluster's machine."""

import getpass
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from typing import Literal, get_args

import click

from flyball.app.api.commands import flyball_anywhere
from flyball.app.bus.keys import Key, KeyList, KeyPair, check_name, check_public, new_pair, read_secret, write_secret
from flyball.app.cli.keys import ALLOWED
from flyball.app.cli.options import FOLDER, json_option
from flyball.app.cli.output import echo, note, write_json
from flyball.app.config import RunFolder
from flyball.app.config.journal_address import check_url
from flyball.app.config.loading import load
from flyball.app.core import BadUsage, reading, writing
from flyball.app.core.shipped import shipped
from flyball.daemons.registry import MachineRole, names_of
from flyball.daemons.run_folder import check_heads

ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:(?P<port>\d{1,5}))?")
PORT = 7400
"""Port of the head's broker if the address has none."""

PLAIN_PATH = re.compile(r"/[A-Za-z0-9/._+@:-]*")
"""Paths that TOML, systemd and supervisord read without quoting."""

Role = Literal["head", "standby", "worker"]
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
"""The service files of each role; a head can also run jobs. A standby is a head."""

NEEDED: Mapping[Role, frozenset[str]] = {
    "head": frozenset({"--head"}),
    "standby": frozenset({"--first-head"}),
    "worker": frozenset({"--head", "--head-key"}),
}
"""Options that each role needs."""

ALLOWED_TOO: Mapping[Role, frozenset[str]] = {
    "head": frozenset({"--standby", "--journal", "--store"}),
    "standby": frozenset(),
    "worker": frozenset({"--standby", "--store"}),
}
"""Options of each role beside the needed ones."""

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
        node: its name.
        folder: its run folder, absolute.
        head: HOST:PORT of the broker.
        store: where models and shards are; ``None``: in the run folder.
        standby: HOST:PORT of the second head's broker; ``None``: there is one head.
        journal: URL of its database; ``None``: it is a file.
    """

    role: Role
    node: str
    folder: Path
    head: str
    store: str | None
    standby: str | None = None
    journal: str | None = None

    @property
    def units(self) -> MachineRole:
        """The role whose service files it has."""
        return "worker" if self.role == "worker" else "head"


@dataclass(frozen=True, slots=True)
class Keys:
    """A machine's key with the file of the secret half, and on a head the list of admitted keys, by its file."""

    secret: Path
    pair: KeyPair
    admitted: Mapping[Path, KeyList]


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option(
    "--role",
    type=click.Choice(get_args(Role)),
    required=True,
    help="head: the machine with the broker; standby: a second head, which takes over; worker: any other.",
)
@click.option(
    "--head", metavar="HOST[:PORT]", help=f"Address at which other machines reach the head; default port {PORT}."
)
@click.option("--head-key", metavar="KEY", help="For a worker: the head's public key.")
@click.option("--standby", metavar="HOST[:PORT]", help="Address of the second head, if there is to be one.")
@click.option("--journal", metavar="URL", help="For a head: the journal's PostgreSQL database, which two heads share.")
@click.option(
    "--first-head", type=FOLDER, help="For a standby: folder with copies of the first head's flyball.toml and keys."
)
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
    role: Role,
    head: str | None,
    head_key: str | None,
    standby: str | None,
    journal: str | None,
    first_head: Path | None,
    node: str | None,
    store: str | None,
    services: Services,
    as_json: bool,
) -> None:
    """Prepare DIR as the run folder of a cluster's machine.

    The command writes settings, a key, and service files. No file is overwritten. The daemons will run as the calling
    user. Prints the next commands for each machine.
    """
    given = {"--head": head, "--head-key": head_key, "--standby": standby, "--journal": journal, "--store": store}
    _check_options(role, {name for name, value in {**given, "--first-head": first_head}.items() if value is not None})
    node, folder = check_name(node or gethostname().partition(".")[0]), _plain_path(folder.absolute())
    if first_head:
        machine, text, keys = second_head(folder, node, first_head)
    else:
        assert head is not None
        machine = Machine(role, node, folder, _address(head), store, standby and _address(standby), journal)
        keys = _new_keys(machine)
        text = settings_text(machine, head_key and check_public(head_key))
        _check_heads(machine)
    files = {RunFolder(folder).settings: text, **service_files(machine, services)}
    _refuse_existing(keys.secret, *files, *(keys.admitted if first_head else ()))
    write_secret(keys.secret, keys.pair)
    for path, admitted in keys.admitted.items():
        admitted.write(path)
    for path, content in files.items():
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(content)
    RunFolder(folder).log("any").parent.mkdir(exist_ok=True)  # supervisord makes no folders
    following = _next_commands(machine, services, keys.pair.public)
    if machine.store and machine.store.startswith("/"):
        _warn_of_store(machine, machine.store)
    if as_json:
        settings, *units = map(str, files)
        files_json = {"settings": settings, "secret": str(keys.secret), "services": units}
        write_json({"role": role, "node": node, "public": keys.pair.public, **files_json, "next": following})
        return
    echo(f"{node} is a {role} in {folder}; its public key is {keys.pair.public}")
    for where, commands in following.items():
        echo(f"\n{where}:\n" + "\n".join(f"  {command}" for command in commands))


def _check_options(role: Role, given: set[str]) -> None:
    """Refuse a missing option of a role, and options of other roles."""
    hint = "`flyball init --role head` prints the commands for the other machines."
    if missing := NEEDED[role] - given:
        raise BadUsage(f"A {role} needs {' and '.join(sorted(missing))}.", hint=hint)
    if foreign := given - NEEDED[role] - ALLOWED_TOO[role]:
        raise BadUsage(f"A {role} takes no {' and no '.join(sorted(foreign))}.", hint=hint)


def _check_heads(machine: Machine) -> None:
    """Refuse two heads with one address or without a shared journal and store, and an unusable journal.

    Raises ``BadUsage``.
    """
    if machine.standby == machine.head:
        raise BadUsage(f"Both heads have the address {machine.head}.", hint="Name another one: --standby HOST:PORT")
    if machine.role == "head" and machine.standby and not (machine.journal and machine.store):
        raise BadUsage(
            "Two heads share a journal on PostgreSQL, and a store.",
            hint="Name both: --journal postgresql://HOST/DATABASE --store URL",
        )
    if machine.journal:
        try:
            check_url(machine.journal)
        except ValueError as error:
            raise BadUsage(f"--journal cannot be used: {error}.") from error


def second_head(folder: Path, node: str, first: Path) -> tuple[Machine, str, Keys]:
    """Return a second head's machine, its ``flyball.toml``, and its keys, from copies of the first one's files.

    Raises ``BadUsage``, ``BadSettings``, ``BadKey`` or ``UnusableFile`` for files that no second head can use.
    """
    file = RunFolder(first).settings
    with reading(file):
        text = file.read_text(encoding="utf-8")
    deployment = load(first).deployment
    own, other = deployment.other_head, deployment.endpoint
    if own is None or other is None:
        raise BadUsage(
            f"{file} does not name the addresses of two heads.",
            hint="Set endpoint and other_head in [deployment] of the first head's flyball.toml, and copy it again.",
        )
    check_heads(deployment)
    if deployment.store is None:
        raise BadUsage(
            f"{file} names no store, and each head would have models of its own.",
            hint="Set store in [deployment] of the first head's flyball.toml, move its models there; copy it again.",
        )
    if deployment.keys.secret is None or deployment.keys.allowed is None:
        raise BadUsage(
            f"{file} does not name the keys of a head.",
            hint="Make them on the first head, and copy the folder keys, too: flyball keys new NAME --authorize head",
        )
    keys = Keys(
        folder / deployment.keys.secret,
        read_secret(first / deployment.keys.secret),
        {folder / deployment.keys.allowed: KeyList.read(first / deployment.keys.allowed)},
    )
    head, standby = (address.removeprefix("tcp://") for address in (other, own))
    machine = Machine("standby", node, folder, head, deployment.store, standby, deployment.journal.url)
    return machine, _exchanged(file, text, {"node": node, "endpoint": own, "other_head": other}), keys


def _exchanged(file: Path, text: str, changes: Mapping[str, str]) -> str:
    """Return the text of a head's settings with other values in the table ``deployment``.

    Raises ``BadUsage`` if the other head has the same node, or if more than whole lines would have to change.
    """
    before = tomllib.loads(text)
    deployment = before.get("deployment", {})
    if deployment.get("node") == changes["node"]:
        raise BadUsage(f"The first head is called {changes['node']}, too.", hint="Give this one another name: --node")
    lines, table = list[str](), ""
    for line in text.splitlines(keepends=True):
        table = line.strip() if line.startswith("[") else table
        if table != "[deployment]" or line.partition("=")[0].strip() not in changes:
            lines.append(line)
        if line.strip() == "[deployment]":
            lines.append(_toml(changes))
    after = "".join(lines)
    try:
        exchanged = tomllib.loads(after) == before | {"deployment": deployment | changes}
    except tomllib.TOMLDecodeError:  # a name in quotes stands twice
        exchanged = False
    if not exchanged:
        raise BadUsage(
            f"{file} cannot be rewritten for a second head.",
            hint="Write node, endpoint and other_head on lines of their own below [deployment], as flyball init does.",
        )
    return after


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


def _new_keys(machine: Machine) -> Keys:
    """Make a machine's key. A head admits its own."""
    folder, pair = RunFolder(machine.folder).keys, new_pair()
    secret, allowed = folder / f"{machine.node}.secret", folder / ALLOWED
    if machine.role == "worker":
        return Keys(secret, pair, {})
    return Keys(secret, pair, {allowed: KeyList.read(allowed).authorize(Key(machine.node, "head", pair.public))})


def settings_text(machine: Machine, head_key: str | None) -> str:
    """Return the text of a new machine's ``flyball.toml``. ``head_key``: the head's public key, for a worker."""
    deployment = {"node": machine.node, "endpoint": f"tcp://{machine.head}"}
    if machine.standby:
        deployment["other_head"] = f"tcp://{machine.standby}"
    if machine.journal:
        deployment["journal"] = machine.journal
    if machine.store:
        deployment["store"] = machine.store
    keys = {"secret": f"keys/{machine.node}.secret"}
    keys |= {"broker": head_key} if head_key else {"allowed": f"keys/{ALLOWED}"}
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
    files = {name: (source / name).read_text(encoding="utf-8") for name in FILES[services, machine.units]}
    if services == "supervisor" and machine.units == "head":
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
    # One of two heads runs no jobs, because under systemd they would wait until its broker serves.
    roles = (machine.units,) if machine.standby or machine.role == "worker" else get_args(MachineRole)
    if services == "systemd":
        targets = " ".join(f"flyball-{role}.target" for role in roles)
        install = f"sudo install -m 644 -t /etc/systemd/system {machine.folder}/systemd/*"
        enable = "enable --now --no-block" if machine.role == "standby" else "enable --now"
        start = [f"{install} && sudo systemctl {enable} {targets}"]
    else:
        start = [f"supervisord -c {machine.folder}/supervisor/{role}.conf" for role in roles]
    if machine.role == "worker":
        admit = f"{authorize} {machine.node} worker {public}"
        return {"On each head, whose run folder belongs after --run": [admit], "Then here": start}
    if machine.role == "standby":
        return {"Here, to take over when the other head ends": start}
    options = [f"--services {services}"] if services != "systemd" else []
    shared = [f"--standby {machine.standby}"] if machine.standby else []
    shared += [f"--store {machine.store}"] if machine.store else []
    worker = f"flyball init --role worker --head {machine.head} --head-key {public}"
    here = "Here, to record and decide" if machine.standby else "Here, to record, decide and also run jobs"
    copied = f"{getpass.getuser()}@{machine.head.rpartition(':')[0]}:{machine.folder}"
    second = [
        f"mkdir first && scp -pr {copied}/flyball.toml {copied}/keys first",
        " ".join(("flyball init --role standby --first-head first", *options, str(machine.folder))),
        "rm -r first",
    ]
    return {
        here: start,
        **({"Then on the second head": second} if machine.standby else {}),
        "On each worker": [" ".join((worker, *shared, *options, str(machine.folder)))],
        "Then on each head, as that command prints": [f"{authorize} NODE worker ITS_PUBLIC_KEY"],
    }
