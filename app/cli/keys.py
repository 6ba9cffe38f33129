"""``flyball keys``: make keys, and say which ones the broker admits."""

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import click

from flyball.app.api.runs import RunLocation
from flyball.app.bus.keys import (
    ROLES,
    Key,
    KeyList,
    Role,
    check_name,
    check_public,
    new_pair,
    read_secret,
    replace_secret,
    write_secret,
)
from flyball.app.cli.options import json_option, run_options
from flyball.app.cli.output import echo, note, write_row
from flyball.app.status.summary import show_time
from flyball.daemons.clock import SystemClock

ALLOWED = "allowed"


@click.group()
def keys() -> None:
    """Make keys, and say which ones the broker admits.

    A key is a node's or a person's. Its secret file stays where it was made; its public key goes to the head. The
    broker notices changes of its list at once.
    """


def secret_file(location: RunLocation, name: str) -> Path:
    """Return the file of a name's secret key."""
    return location.folder.keys / f"{check_name(name)}.secret"


def list_file(location: RunLocation) -> Path:
    """Return the file that lists the admitted keys. The settings name it; otherwise it is in the run folder."""
    loaded = location.load()
    allowed = loaded.deployment.keys.allowed
    return loaded.folder / allowed if allowed else location.folder.keys / ALLOWED


@keys.command()
@click.argument("name")
@click.option("--authorize", "role", type=click.Choice(ROLES), help="Also admit it on this machine, in this role.")
@json_option
@run_options
def new(location: RunLocation, name: str, role: Role | None, *, as_json: bool) -> None:
    """Make a key for NAME, and print its public key."""
    path, pair = secret_file(location, name), new_pair()
    if role:
        admitted = KeyList.read(list_file(location)).authorize(Key(name, role, pair.public))
    write_secret(path, pair)
    if role:
        admitted.write(list_file(location))
    note(f"The secret key is in {path}: never copy it to another machine.")
    write_row({"name": name, "public": pair.public, "file": str(path)}, pair.public, as_json=as_json)


@keys.command()
@click.argument("name")
@click.argument("role", type=click.Choice(ROLES))
@click.argument("public")
@json_option
@run_options
def authorize(location: RunLocation, name: str, role: Role, public: str, *, as_json: bool) -> None:
    """Admit the PUBLIC key of NAME in a role.

    NAME is a node or a person. The roles are head, worker, operator and reader. A head publishes everything, a worker
    the results of its jobs, an operator requests and decisions, and a reader nothing.
    """
    path = list_file(location)
    KeyList.read(path).authorize(Key(check_name(name), role, check_public(public))).write(path)
    if location.load().deployment.keys.allowed is None:
        note(f"No broker reads {path}: deployment.keys.allowed is not set. Is this the head's run folder?")
    row = {"name": name, "role": role, "public": public}
    write_row(row, f"{name} is admitted as {role} with the key {public}", as_json=as_json)


@keys.command(name="list")
@json_option
@run_options
def list_keys(location: RunLocation, *, as_json: bool) -> None:
    """List the keys that the broker admits."""
    for key in KeyList.read(list_file(location)).keys:
        row = asdict(key) | {"until": key.until and key.until.isoformat()}
        until = f"  until {show_time(key.until)}" if key.until else ""
        write_row(row, f"{key.name:<20} {key.role:<8} {key.public}{until}", as_json=as_json)


@keys.command()
@click.argument("name")
@click.argument("public", required=False)
@json_option
@run_options
def revoke(location: RunLocation, name: str, public: str | None, *, as_json: bool) -> None:
    """Refuse all keys of NAME from now on, or only PUBLIC.

    Open connections end.
    """
    path = list_file(location)
    key_list = KeyList.read(path)
    left = key_list.revoke(name, public)
    left.write(path)
    revoked = [key.public for key in key_list.keys if key not in left.keys]
    write_row({"name": name, "revoked": revoked}, f"{name} is refused with {', '.join(revoked)}", as_json=as_json)


@keys.command()
@click.argument("name")
@click.argument("public", required=False)
@click.option("--grace", type=click.FloatRange(0), help="Seconds that older keys stay valid; else until revoked.")
@run_options
def rotate(location: RunLocation, name: str, public: str | None, grace: float | None) -> None:
    """Give NAME a new key, made here or elsewhere (PUBLIC).

    A key made here replaces the secret file, and its public key is printed. Restart the daemons that use it.
    """
    path = list_file(location)
    until = None if grace is None else SystemClock().now() + timedelta(seconds=grace)
    key_list = KeyList.read(path)
    if public:
        key_list.rotate(name, check_public(public), until).write(path)
        return
    secret, pair = secret_file(location, name), new_pair()
    read_secret(secret)  # a key that was made elsewhere has no file here
    key_list.rotate(name, pair.public, until).write(path)
    replace_secret(secret, pair)
    echo(pair.public)
