"""The group of all commands, and their exit codes. Data goes to stdout, everything else to stderr."""

import errno
import gc
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit
from typing import Any, NoReturn

import click

from flyball.app.cli.first_process import continue_as_child
from flyball.app.cli.streams import OutputFailed, discard_output, set_up_streams, tolerate_closed_output

INTERRUPTED = 128 + signal.SIGINT
ARGUMENTS = "flyball.app.cli.arguments"
"""Key of the command line's arguments in a context's ``meta``."""

COMMANDS = {
    "up": "Start all daemons of a run and watch them.",
    "dashboard": "Show a run in the browser.",
    "docs": "Show the documentation in the browser.",
    "status": "Show what is known of configurations and daemons.",
    "top": "Watch a run at a terminal: configurations, daemons, events, logs.",
    "doctor": "Look for troubles of a run and this machine, and say what to do about each.",
    "state": "Show a configuration's signals, knobs and lineage, each with the event that set it.",
    "controllers": "Show what each controller watches, which knobs it owns, and what it decided.",
    "report": "Show what a run trained and decided, and where its time went; or compare two runs.",
    "tail": "Show events, and follow them.",
    "trace": "Show what led to an event and what came of it.",
    "emit": "Publish an event.",
    "train": "Train a policy of a game, from collecting to the best checkpoint, in one process.",
    "eval": "Evaluate a checkpoint, in our games or in Gymnasium's environments.",
    "experience": "Write decisions of games as lines of JSON, and check such lines.",
    "export": "Write a policy as .npz or .json, which NumPy alone plays; or the run into MLflow or W&B.",
    "league": "Show the members of the leagues, and the opponents of self-play.",
    "replay": "Check that a journal replays, ask what if, publish recorded events again.",
    "scenario": "Cause a trouble in a running loop, and see how the loop reacts.",
    "simulate": "Run the controllers on a modelled cluster, and see what they are worth.",
    "compare": "Run the real loop with and without controllers, and see what they are worth on real games.",
    "journal": "Look for damage in the journal, migrate it, rebuild it; look after dead letters.",
    "init": "Prepare a machine of a cluster: settings, a key, service files.",
    "store": "Verify the store of models and shards, and delete what nothing needs.",
    "keys": "Make keys, and say which ones the broker admits.",
    "daemon": "Run one daemon, or list them.",
    "participate": "Do a run's playing, training or evaluating by a command of your own.",
    "observe": "Publish facts from the files of an observed loop, such as CSV or TensorBoard's.",
    "config": "Show or check the settings.",
    "new": "Begin a game, network, trainer, controller or participant of your own from a working example.",
    "check": "Check something of your own before a run uses it.",
    "events": "List event types, show a schema, draw the graph of events.",
    "completion": "Print the completion script of a shell.",
}
"""Each command's help; the module ``flyball.app.cli.NAME`` defines the command ``NAME``."""

OTHER_NAMES = {
    "explain": "trace ID, or doctor --explain CODE",
    "why": "trace ID",
    "start": "up",
    "logs": "tail, for events, or top, for logs",
}
"""Commands, by other names that people give them."""

EXIT_CODES = {
    "usage": 2,
    "no_model": 2,
    "run_exists": 2,
    "config_not_named": 2,
    "settings_not_named": 2,
    "not_running": 3,
    "unknown": 4,
    "unavailable": 5,
    "interrupted": INTERRUPTED,
    "terminated": 128 + signal.SIGTERM,
}
"""The exit code of each error's code.

Code 2 does not depend on the run: its cause is the usage, the settings or a named file. All other errors exit with 1.
"""

ADDED = {"config_not_named": "--config KEY", "settings_not_named": "--config-file FILE"}
"""The option to add to the command after an error, by its code. Errors of the Python API name no options."""

ODD_NAMES = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES})
"""Errors of a bad path, even when only its existence is checked."""


class PathName(click.Path):
    """A path whose name is not empty. An unset variable of the shell is empty, and would mean the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """See ``click.ParamType.convert``."""
        if value == "":
            self.fail("the name is empty.", param, ctx)
        return Path(os.fsdecode(super().convert(value, param, ctx)))


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run the program with streams that tolerate a closed reader and a full disk."""
        if os.getpid() == 1:
            continue_as_child()
        set_up_streams()
        try:
            return super().main(args, *rest, **options)
        except OutputFailed as error:
            _report(f"stdout cannot be written: {error.strerror}.", "Look at the disk or the file it goes to.")
            discard_output()
            sys.exit(1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse arguments that are not UTF-8 and repeated options, then parse the rest."""
        for arg in args:
            try:
                arg.encode()
            except UnicodeEncodeError:  # journals, settings, logs and JSON hold UTF-8
                ctx.fail(f"{os.fsencode(arg)!r} is not UTF-8.")
        ctx.meta[ARGUMENTS] = tuple(args)
        if not ctx.resilient_parsing:  # set while the shell completes a word
            _refuse_repetitions(self, ctx, args, frozenset())
        with tolerate_closed_output():
            return super().parse_args(ctx, args)
        raise click.exceptions.Exit(0)  # nobody reads the help

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return all names in the order of ``COMMANDS``."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import a command; return None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        gc.disable()  # it would scan the new objects of modules many times, a tenth of the time that `status` takes
        try:
            command: click.Command = getattr(import_module(f"flyball.app.cli.{cmd_name}"), cmd_name)
        finally:
            gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or fail and suggest the nearest name."""
        name, *_ = args
        near = [OTHER_NAMES[name]] if name in OTHER_NAMES else get_close_matches(name, COMMANDS, n=1)
        if name not in COMMANDS and near:
            ctx.fail(f"No such command {name!r}. Did you mean {near[0]}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        """Run a command, and report its error.

        The report takes two lines, and each error has an exit code. A closed pipe is not an error: it ends a command
        that writes a stream, and changes nothing for any other (``flyball.app.cli.output.echo``).
        """
        from flyball.app.api.commands import completed, flyball
        from flyball.app.core import FlyballError

        try:
            with tolerate_closed_output():
                super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Aborted!", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
        except FlyballError as error:
            added = ADDED.get(error.code)
            again = f"{shlex.join(('flyball', *ctx.meta[ARGUMENTS]))} {added}"
            start = flyball(ctx.obj["run_dir"], ctx.obj["config_file"])
            _report(error.message, f"Name it: {again}" if added else completed(error.hint, start))
            raise click.exceptions.Exit(EXIT_CODES.get(error.code, 1)) from None
        except OSError as error:
            if isinstance(error, OutputFailed) or (explained := _explanation(error)) is None:
                raise
            _report(*explained)
            raise click.exceptions.Exit(2) from None


def _explanation(error: OSError) -> tuple[str, str] | None:
    """Return message and hint for an error of the user's system, None for other errors."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        limit, _ = getrlimit(RLIMIT_NOFILE)
        return f"Too many files are open: this shell allows {limit}.", "Allow more: ulimit -n 1024."
    if error.filename is None:
        return None if _has_working_directory() else ("The current folder was deleted.", "Change to another one.")
    if error.errno in ODD_NAMES:
        return f"{os.fsdecode(error.filename)} cannot be used: {error.strerror}.", "Look at its name and mode."
    return None


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _report(message: str, hint: str) -> None:
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)
    if hint:
        click.echo(f"{click.style('hint:', fg='cyan')}  {hint}", err=True)


def _refuse_repetitions(command: click.Command, ctx: click.Context, args: list[str], names: frozenset[str]) -> None:
    """Refuse an option that is given twice.

    Otherwise the parser would silently keep the last value. ``args`` includes subcommands and their arguments;
    ``names`` has the options that were given before ``command``.
    """
    _, rest, order = command.make_parser(ctx).parse_args(list(args))
    for param in order:
        if isinstance(param, click.Option) and not (param.multiple or param.is_flag or param.count):
            if param.name in names:
                raise click.UsageError(f"{param.opts[0]} is given twice: keep one.", ctx)
            names |= {str(param.name)}
    if isinstance(command, click.Group) and rest:
        name, *others = rest
        if sub := command.get_command(ctx, name):
            _refuse_repetitions(sub, click.Context(sub, ctx, name, **sub.context_settings), others, names)


MEANINGS = {
    0: "ok",
    1: "failed, or damage, or another process is at it",
    2: "usage, or settings or a file that cannot be used",
    3: "no run, or none that is running",
    4: "unknown or not there yet",
    5: "timeout",
    130: "ended by Ctrl-C",
    143: "ended by SIGTERM",
}
"""Meanings of the exit codes."""

ENDS = (
    f"Exit codes: {', '.join(f'{code} {meaning}' for code, meaning in MEANINGS.items())}. Data goes to stdout, the "
    "rest to stderr."
)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}, epilog=ENDS)
@click.option(
    "--run",
    "run_dir",
    type=PathName(file_okay=False),
    envvar="FLYBALL_RUN",
    default=Path("run"),
    help="Folder of the run.",
)
@click.option(
    "--config-file",
    type=PathName(dir_okay=False),
    envvar="FLYBALL_CONFIG_FILE",
    help="Settings file, instead of flyball.toml in the run folder.",
)
@click.version_option(package_name="flyball")
@click.pass_context
def main(ctx: click.Context, run_dir: Path, config_file: Path | None) -> None:
    """Self-play reinforcement learning that runs itself."""
    ctx.obj = {"run_dir": run_dir, "config_file": config_file}
    if os.environ.get("NO_COLOR"):
        ctx.color = False


whole_process = False
"""The command is all that this process does, unlike in a test."""


class _GoOn(BaseException):
    """Leaves a command in a forked process, which goes on with something else."""

    def __init__(self, rest: Callable[[], None]) -> None:
        super().__init__()
        self.rest = rest


def go_on(rest: Callable[[], None]) -> NoReturn:
    """Leave the command, and do the rest of the process."""
    raise _GoOn(rest)


def run() -> None:
    """Run the command of this process's arguments."""
    global whole_process  # noqa: PLW0603
    whole_process = True
    try:
        main(prog_name="flyball")
    except _GoOn as leaving:
        rest = leaving.rest
    rest()
