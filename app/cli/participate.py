"""``flyball participate``: do a run's tasks by a command of the user's own."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click

from app.api.participation import Seat, first_error, host_daemons, kinds_of
from app.api.runs import RunLocation
from app.cli.group import ARGUMENTS
from app.cli.options import run_options
from app.cli.output import note
from app.core import BadUsage
from app.engine import Engine, LocalEngine
from app.engine.guard import find_program
from app.participation.commands import CommandEngine
from app.participation.tasks import TaskKind
from app.telemetry import configure
from daemons.open_files import allow_open_files
from daemons.run_folder import prepare


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="KIND... -- COMMAND...")
@click.option("--name", help="Name in the run; unset: the first free one of NODE.1, NODE.2 and so on.")
@click.option("--slots", default=1, type=click.IntRange(1), help="Commands that run at once.")
@run_options
@click.pass_context
def participate(
    ctx: click.Context, /, location: RunLocation, *, words: tuple[str, ...], name: str | None, slots: int
) -> None:
    """Do a run's tasks by a command of your own, until SIGTERM or Ctrl-C.

    KIND is selfplay, inspection, training, evaluation or distribution; name several for a command that does several.
    The command runs once for each task. Its last argument is a folder: the task is request.json there, and the command
    writes its answer into result.json.
    """
    arguments = ctx.find_root().meta[ARGUMENTS]
    length = len(arguments) - arguments.index("--") - 1 if "--" in arguments else 0
    kinds, command = kinds_of(words[: len(words) - length]), words[len(words) - length :]
    if not command:
        raise BadUsage("A participant needs a command.", hint=f"flyball participate {kinds[0]} -- ./my_command")
    if find_program(command[0], Path.cwd()) is None:
        raise BadUsage(f"There is no program {command[0]!r}.", hint="Write the command as you would in this shell.")
    allow_open_files()
    prepare(location.folder)
    folder, loaded = location.folder, location.load()
    with closing(Seat(loaded, folder.path / "participants", name)) as seat:
        log = folder.log(f"participant@{seat.name}")
        with configure("participant", seat.name, log, loaded.deployment.log_level):
            scratch = folder.path / "participants" / f"{seat.name}.tasks"
            engine = CommandEngine(LocalEngine(slots), command, Path.cwd(), scratch)
            asyncio.run(_host(location, kinds, engine, seat.name, slots))


async def _host(location: RunLocation, kinds: Sequence[TaskKind], engine: Engine, name: str, slots: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await host_daemons(location, kinds, engine, stop, name=name, slots=slots, say=note)
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    finally:
        await engine.close()
