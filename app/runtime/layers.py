"""Layers of settings: file, environment, command line. Each is a flat mapping of dotted keys."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, create_model
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

from app.config import MATCHMAKING, Deployment, GameConfig, RunSettings, flatten
from app.core import ConfigKey, FlyballError

ENV_PREFIX = "FLYBALL_"
RESERVED = frozenset({"FLYBALL_RUN", "FLYBALL_CONFIG_FILE"})
"""Variables that say where settings are, and are none."""

GAME_TABLES = "games"


class BadSettings(FlyballError):
    """Settings that cannot be used; the message names file or variable, and key."""


def _document() -> type[BaseSettings]:
    run = RunSettings.model_fields.items()
    fields: dict[str, Any] = {name: (field.annotation, field) for name, field in run if name != "configs"} | {
        "profile": (str | None, None),
        "configs": (tuple[ConfigKey, ...] | None, None),
        "deployment": (Deployment, Deployment()),
        GAME_TABLES: (dict[str, GameConfig], {}),
    }
    return cast("type[BaseSettings]", create_model("Document", __base__=BaseSettings, **fields))


DOCUMENT = _document()
"""The shape of ``flyball.toml``."""


def _leaves(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from (f"{name}.{leaf}" for leaf in _leaves(field.annotation))
        elif name != GAME_TABLES:
            yield name


MATCHMAKING_TABLE = "league.matchmaking"
"""The table that may also be the name of a preset."""

TOP_KEYS = frozenset(_leaves(DOCUMENT)) | {MATCHMAKING_TABLE}
GAME_KEYS = frozenset(_leaves(GameConfig)) - {"key"}


@dataclass(frozen=True, slots=True)
class Layer:
    """Values by dotted key, and where they come from; ``{}`` in ``origin`` stands for the key's variable."""

    origin: str
    values: Mapping[str, Any]

    def origin_of(self, key: str) -> str:
        """Return where the value of a key comes from."""
        return self.origin.format(variable(key))


def variable(key: str) -> str:
    """Return the environment variable that sets a dotted key."""
    return ENV_PREFIX + key.upper().replace(".", "__")


def file_layer(path: Path) -> Layer:
    """Read a settings file; an absent one says nothing.

    Raises:
        BadSettings: it can't be read, or has keys that mean nothing.
    """
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        tree = {}
    except (OSError, ValueError) as error:
        raise BadSettings(f"{path} cannot be read: {error}.", hint="It has to be TOML, in UTF-8.") from error
    return checked(Layer(path.name, flatten(tree)), str(path))


def environment_layer() -> Layer:
    """Read the variables that begin with ``FLYBALL_``; tables are separated by two underscores.

    Raises:
        BadSettings: a variable means nothing, or its value cannot be read.
    """
    names = (name.upper() for name in os.environ)
    own = {name for name in names if name.startswith(ENV_PREFIX) and name not in RESERVED}
    keys = {name.removeprefix(ENV_PREFIX).lower().replace("__", "."): name for name in own}
    for key, name in keys.items():
        _check_key(key, f"the environment variable {name}")
    try:
        tree = EnvSettingsSource(DOCUMENT, env_prefix=ENV_PREFIX, env_nested_delimiter="__")()
    except SettingsError as error:
        raise BadSettings(f"{error}.", hint='Lists are written as JSON: ["one", "two"].') from error
    return Layer("environment {}", _without_preset(flatten(tree), "the environment"))


def checked(layer: Layer, where: str) -> Layer:
    """Return the layer when all its keys mean something.

    Raises:
        BadSettings: names the first key that means nothing, and the nearest that does; or an unknown preset.
    """
    for key in layer.values:
        _check_key(key, where)
    return Layer(layer.origin, _without_preset(layer.values, where))


def _without_preset(values: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return a preset's values in the place of its name, so that other layers may change some of them."""
    if MATCHMAKING_TABLE not in values:
        return values
    preset = MATCHMAKING.get(values[MATCHMAKING_TABLE])
    if preset is None:
        said = f"{MATCHMAKING_TABLE} in {where} is {values[MATCHMAKING_TABLE]!r}, which is no preset."
        raise BadSettings(said, hint=f"There are: {', '.join(MATCHMAKING)}. Or write a table.")
    others = {key: value for key, value in values.items() if key != MATCHMAKING_TABLE}
    return flatten(preset.model_dump(mode="json"), f"{MATCHMAKING_TABLE}.") | others


def _check_key(key: str, where: str) -> None:
    known, prefix, rest = TOP_KEYS, "", key
    if key.startswith(f"{GAME_TABLES}.") and key.count(".") > 1:
        _, game, rest = key.split(".", 2)
        known, prefix = GAME_KEYS, f"{GAME_TABLES}.{game}."
    if rest in known:
        return
    last = {name.rpartition(".")[2]: name for name in known}
    near = get_close_matches(rest, known, n=1) or [last[n] for n in get_close_matches(rest.rpartition(".")[2], last, 1)]
    hint = f"Did you mean {prefix}{near[0]}?" if near else f"There are: {', '.join(sorted(known))}."
    raise BadSettings(f"Unknown setting {key!r} in {where}.", hint=hint)
