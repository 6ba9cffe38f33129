"""``flyball participate``: do a run's tasks by a command of the user's own, or by callers over HTTP."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from types import FrameType
from typing import Any

import click
import uvicorn

from flyball.app.api.participant_port import Port
from flyball.app.api.participation import HeldName, first_error, host_daemons, kinds_of, relay_jobs
from flyball.app.api.runs import RunLocation
from flyball.app.cli.group import ARGUMENTS
from flyball.app.cli.options import FILE, run_options
from flyball.app.cli.output import note
from flyball.app.config.loading import Loaded
from flyball.app.core import BadUsage, writing
from flyball.app.core.hosts import is_loopback
from flyball.app.dashboard.access import read_token, url_of
from flyball.app.engine import Engine, LocalEngine
from flyball.app.engine.guard import find_program
from flyball.app.engine.relay import RelayEngine
from flyball.app.participation.commands import CommandEngine
from flyball.app.participation.tasks import TaskKind
from flyball.app.telemetry import configure
from flyball.daemons.open_files import allow_open_files
from flyball.daemons.run_folder import prepare

LOCALHOST = "127.0.0.1"
Hosting = Callable[[Engine, asyncio.Event], Coroutine[Any, Any, None]]
"""Hosts the daemons, whose jobs the engine does, until the event is set."""


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="KIND... [-- COMMAND...]")
@click.option("--name", help="Name in the run; unset: the first free one of NODE.1, NODE.2 and so on.")
@click.option("--slots", default=1, type=click.IntRange(1), help="Tasks of a kind at once.")
@click.option("--http", metavar="[HOST:]PORT", help="Instead of a command: hand tasks to callers of this port.")
@click.option("--token-file", type=FILE, help="File with the port's token; unset: one in the run folder.")
@run_options
@click.pass_context
def participate(
    ctx: click.Context,
    /,
    location: RunLocation,
    *,
    words: tuple[str, ...],
    name: str | None,
    slots: int,
    http: str | None,
    token_file: Path | None,
) -> None:
    """Do a run's tasks by a command of your own, until SIGTERM or Ctrl-C.

    KIND is selfplay, inspection, training, evaluation or distribution; name several for a command that does several.
    The command runs once for each task. Its last argument is a folder: the task is request.json there, and the command
    writes its answer into result.json.

    With --http there is no command: programs in any language ask for tasks and answer them. /openapi.json there
    describes the calls. They need the token. Without keys, only this machine reaches the port.
    """
    arguments = ctx.find_root().meta[ARGUMENTS]
    length = len(arguments) - arguments.index("--") - 1 if "--" in arguments else 0
    kinds, command = kinds_of(words[: len(words) - length]), words[len(words) - length :]
    loaded = location.load()
    if http is None:
        _check_command(kinds, command)
    elif command:
        raise BadUsage("A participant has either a command or --http.", hint="Leave one of them out.")
    allow_open_files()
    prepare(location.folder)
    folder = location.folder.path / "participants"
    with closing(HeldName(loaded, folder, name)) as held:
        log = location.folder.log(f"participant@{held.name}")
        with configure("participant", held.name, log, loaded.deployment.log_level):
            host = partial(host_daemons, location, kinds, name=held.name, slots=slots, say=note)
            if http is None:
                scratch = folder / f"{held.name}.tasks"
                engine = CommandEngine(LocalEngine(slots), command, Path.cwd(), scratch)
                asyncio.run(_run_commands(engine, host))
                return
            file = token_file or folder / "token"
            token, listening = _token(file), _listen(http, loaded)
            note(f"Tasks are handed out at {url_of(listening)}; the token is in {file}.")
            asyncio.run(_serve(host, listening, token))


def _check_command(kinds: Sequence[TaskKind], command: Sequence[str]) -> None:
    if not command:
        raise BadUsage("A participant needs a command.", hint=f"flyball participate {kinds[0]} -- ./my_command")
    if find_program(command[0], Path.cwd()) is None:
        raise BadUsage(f"There is no program {command[0]!r}.", hint="Write the command as you would in this shell.")


async def _run_commands(engine: Engine, host: Hosting) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await host(engine, stop)
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    finally:
        await engine.close()


def _listen(address: str, loaded: Loaded) -> socket.socket:
    """Return a socket that listens at HOST:PORT or PORT.

    Raises ``BadUsage`` for an address that cannot be used, or that other machines reach though the run has no keys.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or LOCALHOST
    if not is_loopback(host) and loaded.deployment.keys.secret is None:
        raise BadUsage(
            f"Other machines would reach {host}, and this run has no keys.",
            hint=f"Listen at {LOCALHOST}:{port}, or make keys: flyball keys new NAME; then set deployment.keys.",
        )
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        server = socket.socket(family, kind, protocol)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(where)
        server.listen(128)
    except (OSError, ValueError, OverflowError) as error:
        hint = "Write [HOST:]PORT, and a port that is free."
        raise BadUsage(f"No port for participants at {address}: {error}.", hint=hint) from error
    return server


def _token(path: Path) -> str:
    """Return the token in a file, which is made if it is missing. Raises as ``read_token``."""
    with writing(path), suppress(FileExistsError):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w", encoding="ascii") as opened:
            opened.write(f"{token_hex(32)}\n")
    return read_token(path)


async def _serve(host: Hosting, listening: socket.socket, token: str) -> None:
    """Serve the port, and host the daemons. Answers are taken until running tasks have had their time."""
    from flyball.app.dashboard.web import server_config  # imported late, because it takes OpenSpiel

    engine, stop = RelayEngine(), asyncio.Event()

    class Server(uvicorn.Server):
        """A server whose end is that of the daemons."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
            stop.set()

    server = Server(server_config(Port(engine, token).application()))

    async def hosting() -> None:
        try:
            await relay_jobs(host(engine, stop), engine, stop)
        finally:
            server.should_exit = True

    async def serving() -> None:
        try:
            await server.serve(sockets=[listening])
        finally:
            stop.set()

    # Each ends the other in order; a TaskGroup would cancel the server, which then prints a traceback of its own.
    for error in await asyncio.gather(hosting(), serving(), return_exceptions=True):
        if error is not None:
            raise first_error(error)
