"""Options that commands share, the run folder first, and connecting to the run's broker."""

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from app.bus import ZmqBus
from app.config import GameConfig, RunFolder
from app.config.loading import Loaded, load
from app.core import FlyballError, allow_modules_in
from app.telemetry import FIGURE_FORMATS
from daemons.run_folder import bus_endpoint

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
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
PROBE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """The run folder, and the settings file if one is named."""

    folder: RunFolder
    config_file: Path | None

    @property
    def settings(self) -> Path:
        """The settings file."""
        return self.config_file or self.folder.settings

    def load(self, overrides: Mapping[str, Any] | None = None) -> Loaded:
        """Load the settings."""
        return load(self.folder.path, overrides, config_file=self.config_file)

    def config(self, key: str) -> GameConfig:
        """Load one configuration, whether or not the run plays it. Raises ``UnknownConfig``."""
        return self.load({"configs": [key]}).run.config(key)


def _set(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.find_root().obj[param.name] = value


def placed(command: C) -> C:
    """Add ``--run`` and ``--config-file`` to a command, and pass it the place as its first argument.

    The command can import modules beside the settings file: games and backends of the user's own.
    """

    @click.option("--run", "run_dir", type=FOLDER, callback=_set, expose_value=False, help="Folder of the run.")
    @click.option("--config-file", type=FILE, callback=_set, expose_value=False, help="Settings file.")
    @click.pass_context
    @wraps(command)
    def with_place(ctx: click.Context, /, *args: Any, **options: Any) -> Any:
        chosen = ctx.find_root().obj
        place = Place(RunFolder(chosen["run_dir"]), chosen["config_file"])
        allow_modules_in(place.settings.parent)
        return command(place, *args, **options)

    return with_place  # type: ignore[return-value]  # click's decorators call it as they would the command


def pick(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the options of these names."""
    return {name: options[name] for name in names}


def given_options(ctx: click.Context) -> dict[str, str]:
    """Return the flags of options and arguments on the command line, by parameter name."""
    flags = {str(param.name): param.opts[0] for param in ctx.command.params if param.expose_value}
    given = (name for name in flags if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE)
    return {name: flags[name] for name in given if ctx.params[name] != ()}  # click counts a missing PATTERN as given


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


class NotRunning(FlyballError):
    """No broker answers."""


def is_listening(endpoint: str) -> bool:
    """Return whether a broker listens at an address."""
    transport, _, rest = endpoint.partition("://")
    with suppress(OSError):
        if transport == "ipc":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(PROBE_SECONDS)
                probe.connect(rest)
                return True
        host, _, port = rest.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS):
            return True
    return False


@asynccontextmanager
async def connected(place: Place, deadline_s: float) -> AsyncIterator[ZmqBus]:
    """Connect to the run's broker, as the producer ``cli@node``. Raises ``NotRunning`` when none listens."""
    deployment = place.load().deployment
    endpoint = bus_endpoint(place.folder, deployment)
    if not is_listening(endpoint):
        raise NotRunning(f"No broker listens at {endpoint}.", hint=f"Start it: flyball --run {place.folder.path} up")
    bus = ZmqBus(endpoint, producer=f"cli@{deployment.node}", deadline_s=deadline_s)
    try:
        yield bus
    finally:
        await bus.close()
