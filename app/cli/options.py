"""Options that commands share: the run folder, JSON, figures; and connecting to the run's broker."""

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from app.bus import ZmqBus
from app.config import RunFolder
from app.config.loading import Loaded, load
from app.core import FlyballError
from app.telemetry import FIGURE_FORMATS
from daemons.run_folder import bus_endpoint

C = TypeVar("C", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")
timeout_option = click.option(
    "--timeout", default=10.0, show_default=True, type=click.FloatRange(0, min_open=True), help="Seconds."
)
config_key_option = click.option("--config-key", help="Only events about this configuration.")
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
SEED = click.IntRange(0, 2**63 - 1)
PROBE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """The run folder, and the settings file if one is named."""

    folder: RunFolder
    config_file: Path | None

    def load(self, overrides: Mapping[str, Any] | None = None) -> Loaded:
        """Load the settings."""
        return load(self.folder.path, overrides, config_file=self.config_file)


def _set(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.find_root().obj[param.name] = value


def placed(command: C) -> C:
    """Add ``--run`` and ``--config-file`` to a command, and pass it the place as its first argument."""

    @click.option("--run", "run_dir", type=FOLDER, callback=_set, expose_value=False, help="Folder of the run.")
    @click.option("--config-file", type=FILE, callback=_set, expose_value=False, help="Settings file.")
    @click.pass_context
    @wraps(command)
    def with_place(ctx: click.Context, /, *args: Any, **options: Any) -> Any:
        chosen = ctx.find_root().obj
        return command(Place(RunFolder(chosen["run_dir"]), chosen["config_file"]), *args, **options)

    return with_place  # type: ignore[return-value]  # click's decorators call it as they would the command


def pick(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the options of these names."""
    return {name: options[name] for name in names}


def figure_option(what: str) -> Callable[[Any], Any]:
    """Return the option ``--plot``, which hands the path over as ``figure``.

    A file that can't be written is refused before there is anything to draw.
    """
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
async def connected(place: Place, loaded: Loaded, deadline_s: float) -> AsyncIterator[ZmqBus]:
    """Connect to the run's broker, as the producer ``cli@node``.

    Raises:
        NotRunning: no broker listens at its address.
    """
    endpoint = bus_endpoint(place.folder, loaded.deployment)
    if not is_listening(endpoint):
        raise NotRunning(f"No broker listens at {endpoint}.", hint=f"Start it: flyball --run {place.folder.path} up")
    bus = ZmqBus(endpoint, producer=f"cli@{loaded.deployment.node}", deadline_s=deadline_s)
    try:
        yield bus
    finally:
        await bus.close()
