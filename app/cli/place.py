"""Which run a command is about: options that all commands share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from app.config import RunFolder
from app.runtime.settings import Loaded, load

C = TypeVar("C", bound=Callable[..., Any])


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

    @click.option(
        "--run",
        "run_dir",
        type=click.Path(file_okay=False, path_type=Path),
        callback=_set,
        expose_value=False,
        help="Folder of the run.",
    )
    @click.option(
        "--config-file",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=_set,
        expose_value=False,
        help="Settings file.",
    )
    @click.pass_context
    @wraps(command)
    def with_place(ctx: click.Context, /, *args: Any, **options: Any) -> Any:
        chosen = ctx.find_root().obj
        return command(Place(RunFolder(chosen["run_dir"]), chosen["config_file"]), *args, **options)

    return with_place  # type: ignore[return-value]  # click's decorators call it as they would the command


json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")
