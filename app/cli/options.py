"""Options that commands share, the run folder first."""

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from flyball.app.api.runs import locate_run
from flyball.app.cli.group import PathName
from flyball.app.events import CATALOGUE
from flyball.app.telemetry import FIGURE_FORMATS

C = TypeVar("C", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")
timeout_option = click.option("--timeout", default=10.0, type=click.FloatRange(0, min_open=True), help="Seconds.")
config_key_option = click.option("--config-key", help="Only events about this configuration.")
SEED = click.IntRange(0, 2**63 - 1)
seed_option = click.option("--seed", default=0, type=SEED, help="Of all that is drawn.")
workers_option = click.option("--workers", default=1, type=click.IntRange(1), help="Processes that play.")
set_option = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Change a setting; repeatable."
)
FILE, FOLDER = PathName(dir_okay=False), PathName(file_okay=False)


def _set(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.find_root().obj[param.name] = value


def run_options(command: C) -> C:
    """Add ``--run`` and ``--config-file`` to a command, whose first argument is their ``RunLocation``."""

    @click.option("--run", "run_dir", type=FOLDER, callback=_set, expose_value=False, help="Folder of the run.")
    @click.option("--config-file", type=FILE, callback=_set, expose_value=False, help="Settings file.")
    @click.pass_context
    @wraps(command)
    def with_run_location(ctx: click.Context, /, *args: Any, **options: Any) -> Any:
        chosen = ctx.find_root().obj
        return command(locate_run(chosen["run_dir"], chosen["config_file"]), *args, **options)

    return with_run_location  # type: ignore[return-value]  # click's decorators call it as they would the command


def run_sources() -> set[ParameterSource | None]:
    """Return where ``--run`` was given: before the command's name, and after it."""
    context = click.get_current_context()
    return {ctx.get_parameter_source("run_dir") for ctx in (context, context.find_root())}


def pick(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the options of these names."""
    return {name: options[name] for name in names}


def given_options(ctx: click.Context) -> dict[str, str]:
    """Return the flags that the command line gives, by parameter name. An argument's flag is its name."""
    flags = {str(param.name): param.opts[0] for param in ctx.command.params if param.expose_value}
    names = (name for name in flags if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE)
    return {name: flags[name] for name in names if ctx.params[name] != ()}  # click counts a missing PATTERN as given


def figure_option(what: str) -> Callable[[Any], Any]:
    """Return the option ``--plot``, passed as ``figure``: a path with a known suffix in an existing folder."""
    help_text = f"{what}: {', '.join(FIGURE_FORMATS)}."
    return click.option("--plot", "figure", type=FILE, callback=_check_figure, help=help_text)


def _check_figure(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    if path and path.suffix not in FIGURE_FORMATS:
        raise click.BadParameter(f"{path}: end it with {', '.join(FIGURE_FORMATS[:-1])} or {FIGURE_FORMATS[-1]}.")
    if path and not path.parent.is_dir():
        raise click.BadParameter(f"{path} cannot be written: there is no folder {path.parent}.")
    return path


def complete_types(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Complete event names."""
    return [payload.event_name for payload in CATALOGUE if payload.event_name.startswith(incomplete.upper())]
