"""Settings of a run folder, from four layers, and changes to them.

The layers are the defaults, ``flyball.toml``, environment variables (``FLYBALL_LEAGUE__MATCHMAKING``) and the command
line; later ones override earlier ones, key by key. Every key is checked where it is read, so that an error names its
file or variable and the nearest key. It names no origin of what the caller just gave, because that may be an option, a
field of a form or an argument in Python. A change (``--set KEY=VALUE``) applies to settings that are in force already.
"""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, Field, JsonValue, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

from app.config.base import Settings
from app.config.controllers import ControllerSettings
from app.config.deployment import Deployment, RunFolder
from app.config.devices import DeviceSettings, PrecisionSettings
from app.config.games import GAMES
from app.config.run import MATCHMAKING, PROFILES, RunSettings
from app.config.settings import CONFIG_KEY, BotSettings, GameConfig, Modules
from app.core import ConfigKey, FlyballError, allow_modules_in

ENV_PREFIX = "FLYBALL_"
RESERVED = frozenset({"FLYBALL_RUN", "FLYBALL_CONFIG_FILE"})
"""Variables that name the run folder and the settings file, not settings."""

GAME_TABLES = "games"
CONTROLLER_TABLES = "controllers"
IMPORT = "import"
"""Modules imported before a game is loaded, for games that register themselves with OpenSpiel."""

MATCHMAKING_TABLE = "league.matchmaking"
"""The table that may also be the name of a preset."""

BY_JOB = {"deployment.device": DeviceSettings, "deployment.precision": PrecisionSettings}
"""Tables with a value for each kind of job; one value stands for all kinds."""

DEFAULT, COMMAND_LINE = "default", "command line"
NEEDED = frozenset({"game", "players"})
"""Required keys of a new configuration."""

NO_RUN_SETTING = frozenset({"profile", "configs", "deployment", "import"})
"""Keys of ``flyball.toml`` that RUN_CONFIGURED does not hold in this form."""

MOVED = {
    "": {
        "deployment.evaluation_processes": "deployment.processes.evaluation",
        "feedback.scheduler.node_silent_seconds": "deployment.node_silent_seconds",
    },
    GAME_TABLES: {"ppo.learning_rate": "learning_rate", "ppo.epochs": "epochs"},
}
"""New keys of settings, by their former keys; for each table of named settings, and for the others."""

IMPORTS = create_model("Imports", __base__=Settings, **cast("dict[str, Any]", {IMPORT: (Modules, ())}))
"""The setting ``import``, which every configuration gets. Python's syntax forbids a field of that name."""

M = TypeVar("M", bound=BaseModel)
Layer = dict[str, tuple[Any, str]]
"""Each dotted key's value and its origin."""


class BadSettings(FlyballError, code="usage"):
    """Settings that cannot be used.

    The message names the file or variable, and the key.
    """


class UnknownConfig(BadSettings, code="unknown"):
    """No game configuration has this key."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings and their origins."""

    run: RunSettings  # what is played and learned; journaled
    deployment: Deployment  # how and where this installation runs
    games: Mapping[str, GameConfig]  # all configurations that could be chosen
    folder: Path  # of the settings file
    origins: Mapping[str, str]  # by dotted key: default, the file's name, "environment FLYBALL_X", or "command line"

    def store(self, run: RunFolder) -> str:
        """Return the folder or URL of the run's store; see ``app.store.open_store``."""
        return self.deployment.store_name(run, self.folder)

    def values(self) -> dict[str, Any]:
        """Return every effective value by dotted key, as in ``flyball.toml``."""
        configs = self.run.configs
        top = self.run.model_dump(mode="json")
        top |= {"configs": [config.key for config in configs], IMPORT: list(configs[0].imports)}
        games = {config.key: config.model_dump(mode="json", exclude={"key", "imports"}) for config in configs}
        return flatten(top | {"deployment": self.deployment.model_dump(mode="json"), GAME_TABLES: games})


def load(run_dir: Path, overrides: Mapping[str, Any] | None = None, *, config_file: Path | None = None) -> Loaded:
    """Load the settings of the run in a folder.

    The folder may not exist yet. Modules beside the settings can be imported afterwards.

    Args:
        run_dir: the run folder.
        overrides: nested tables as in ``flyball.toml``, from the caller: a command, or a function's arguments.
        config_file: read instead of ``flyball.toml`` in the run folder.

    Raises ``BadSettings``, also as ``UnknownConfig``.
    """
    if config_file is not None and not config_file.is_file():
        raise BadSettings(f"There is no settings file {config_file}.", hint="Put it there, or name another one.")
    file = config_file or RunFolder(run_dir).settings
    allow_modules_in(file.parent)
    layers = _file_layer(file), _environment_layer(), _layer(flatten(overrides or {}), "", COMMAND_LINE)
    effective: Layer = {key: sourced for layer in layers for key, sourced in layer.items()}
    tables = nest({key: value for key, (value, _) in effective.items()})
    origins = {key: origin for key, (_, origin) in effective.items()}
    keys, origins["configs"] = _chosen(layers)
    deployment = _validated(Deployment, tables.get("deployment", {}), "deployment.", origins)
    games = _games(tables.get(GAME_TABLES, {}), origins)
    document = {name: value for name, value in tables.items() if name in RunSettings.model_fields}
    if "selfplay_workers" not in document:
        document["selfplay_workers"] = [f"selfplay_worker@{deployment.node}"]
        origins["selfplay_workers"] = origins.get("deployment.node", DEFAULT)
    if unknown := [key for key in keys if key not in games]:
        raise _unknown(unknown[0], games, origins["configs"])
    imports = _validated(IMPORTS, {IMPORT: tables.get(IMPORT, ())}, "", origins).model_dump()[IMPORT]
    games = {key: game.replace(imports=imports) for key, game in games.items()}
    run = _validated(RunSettings, document | {"configs": [games[key] for key in keys]}, "", origins)
    _check_thresholds(run, origins)
    loaded = Loaded(run, deployment, games, file.parent, origins)
    return replace(loaded, origins={key: origins.get(key, DEFAULT) for key in loaded.values()})


def _file_layer(path: Path) -> Layer:
    """Read a settings file; an absent one is empty."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        tree = {}
    except OSError as error:
        raise BadSettings(f"{path} cannot be used: {error.strerror}.", hint="Look at its name and mode.") from error
    except ValueError as error:
        raise BadSettings(f"{path} cannot be read: {error}.", hint="It has to be TOML, in UTF-8.") from error
    if dotted := next(_keys_with_dots(tree), None):
        raise BadSettings(
            f"The key {dotted!r} in {path} has a dot in it.", hint="Dots separate tables, also in options: rename it."
        )
    return _layer(flatten(tree), f" in {path}", path.name)


def _keys_with_dots(tree: Mapping[str, Any]) -> Iterator[str]:
    for name, value in tree.items():
        if "." in name:
            yield name
        if isinstance(value, Mapping):
            yield from _keys_with_dots(value)


def _environment_layer() -> Layer:
    """Read the variables that begin with ``FLYBALL_``; two underscores separate tables."""
    names = (name.upper() for name in os.environ)
    own = {name for name in names if name.startswith(ENV_PREFIX) and name not in RESERVED}
    for name in own:
        key = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
        _check_key(key, f" in the environment variable {name}")
    try:
        tree = _Environment(DOCUMENT, env_prefix=ENV_PREFIX, env_nested_delimiter="__")()
    except SettingsError as error:
        raise BadSettings(f"{error}.", hint='Lists are written as JSON: ["one", "two"].') from error
    values = {key: _read(value) if _is_free(key) else value for key, value in flatten(tree).items()}
    return _layer(values, " in the environment", "environment {}")


class _Environment(EnvSettingsSource):
    """Source of settings from environment variables.

    The variable of a table holds JSON, or the value of a shorthand.
    """

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return a table's or a list's value."""
        shorthands = {key.rpartition(".")[2] for key in (MATCHMAKING_TABLE, *BY_JOB)}
        is_name = field_name in shorthands and not value.startswith(("{", '"'))
        return value if is_name else super().decode_complex_value(field_name, field, value)


def variable(key: str) -> str:
    """Return the environment variable that sets a dotted key."""
    return ENV_PREFIX + key.upper().replace(".", "__")


def set_by(origin: str) -> str:
    """Return an origin for a message: in brackets; empty for the command line."""
    return "" if origin == COMMAND_LINE else f" ({origin})"


def _layer(values: Mapping[str, Any], where: str, origin: str) -> Layer:
    """Return values with their origins, and with shorthands expanded.

    In the origin, ``{}`` stands for the key's variable. Raises ``BadSettings`` for an unknown key or preset.
    """
    given = {key: value for key, value in values.items() if value != {} or _is_free(key)}  # empty tables set nothing
    for key in given:
        _check_key(key, where)
    return {key: (value, origin.replace("{}", variable(key))) for key, value in _written_out(given, where).items()}


def _document() -> type[BaseSettings]:
    run = RunSettings.model_fields.items()
    fields: dict[str, Any] = {name: (field.annotation, field) for name, field in run if name != "configs"} | {
        "profile": (str | None, Field(None, description=f"set of configurations to run: {', '.join(PROFILES)}")),
        "configs": (
            tuple[ConfigKey, ...] | None,
            Field(None, description="configurations to run, instead of a profile; both unset: those of laptop"),
        ),
        IMPORT: (
            Modules,
            Field((), description="modules imported before a game is loaded, beside flyball.toml or installed"),
        ),
        "deployment": (Deployment, Deployment()),
        GAME_TABLES: (dict[str, GameConfig], {}),
    }
    return cast("type[BaseSettings]", create_model("Document", __base__=BaseSettings, **fields))


def _leaves(model: type[BaseModel]) -> Iterator[str]:
    """Iterate over the dotted keys of a model's settings."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from (f"{name}.{leaf}" for leaf in _leaves(field.annotation))
        else:
            yield name


DOCUMENT = _document()
"""The shape of ``flyball.toml``."""

TOP_KEYS = (frozenset(_leaves(DOCUMENT)) - {GAME_TABLES, CONTROLLER_TABLES}) | {MATCHMAKING_TABLE, *BY_JOB}
NAMED_KEYS = {
    GAME_TABLES: frozenset(_leaves(GameConfig)) - {"key", "imports"},
    CONTROLLER_TABLES: frozenset(_leaves(ControllerSettings)),
}
"""Keys of tables whose names the user chooses: ``games.KEY.game``, ``controllers.NAME.use``."""

BOT_TABLES = "bots"
"""The table of a configuration with a table for each bot; any name is a key there."""

BOT_KEYS = frozenset(BotSettings.model_fields)
FREE_TABLES = {GAME_TABLES: ("options.", "network.options.", f"{BOT_TABLES}."), CONTROLLER_TABLES: ("options.",)}
"""Tables, with a final dot, in which any key may be set, by the group of named tables that they belong to."""


def _is_free(key: str) -> bool:
    """Return whether a dotted key may have any value.

    Keys in ``FREE_TABLES`` may, and the table of all controllers, where ``{}`` means no controllers.
    """
    tables, _, rest = key.partition(".")
    return key == CONTROLLER_TABLES or f"{rest.partition('.')[2]}.".startswith(FREE_TABLES.get(tables, ()))


def _check_key(key: str, where: str) -> None:
    """Refuse an unknown key, naming the nearest known one."""
    known, prefix, rest = TOP_KEYS, "", key
    if key.count(".") > 1 and key.partition(".")[0] in NAMED_KEYS:
        tables, name, rest = key.split(".", 2)
        known, prefix = NAMED_KEYS[tables], f"{tables}.{name}."
    is_of_bot = prefix.startswith(f"{GAME_TABLES}.") and rest.startswith(f"{BOT_TABLES}.") and rest.count(".") == 2
    if is_of_bot:
        _, bot, rest = rest.split(".")
        known, prefix = BOT_KEYS, f"{prefix}{BOT_TABLES}.{bot}."
    if rest in known or (_is_free(key) and not is_of_bot):
        return
    if moved := MOVED.get(prefix.partition(".")[0], {}).get(rest):
        raise BadSettings(f"{key!r}{where} has another name now.", hint=f"Write {prefix}{moved} instead.")
    if (name := rest.rpartition(".")[2]) != rest and name in TOP_KEYS:
        hint = f"{name} belongs above all tables: move it there."
        raise BadSettings(f"Unknown setting {key!r}{where}.", hint=hint)
    last = {name.rpartition(".")[2]: name for name in known}
    near = get_close_matches(rest, known, n=1) or [last[n] for n in get_close_matches(rest.rpartition(".")[2], last, 1)]
    hint = f"Did you mean {prefix}{near[0]}?" if near else f"There are: {', '.join(sorted(known))}."
    raise BadSettings(f"Unknown setting {key!r}{where}.", hint=hint)


def _written_out(values: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Replace shorthands by their values.

    Other layers can then change some of the values.
    """
    for table in BY_JOB.keys() & values.keys():
        others = {key: value for key, value in values.items() if key != table}
        values = {f"{table}.{kind}": values[table] for kind in BY_JOB[table].model_fields} | others
    if MATCHMAKING_TABLE not in values:
        return values
    preset = MATCHMAKING.get(values[MATCHMAKING_TABLE])
    if preset is None:
        message = f"{MATCHMAKING_TABLE}{where} is {values[MATCHMAKING_TABLE]!r}, which is no preset."
        raise BadSettings(message, hint=f"There are: {', '.join(MATCHMAKING)}. Or write a table.")
    others = {key: value for key, value in values.items() if key != MATCHMAKING_TABLE}
    return flatten(preset.model_dump(mode="json"), f"{MATCHMAKING_TABLE}.") | others


def _chosen(layers: Sequence[Layer]) -> tuple[Sequence[str], str]:
    """Return the configurations to run, and their origin.

    The last layer with ``configs`` or ``profile`` names them; without such a layer, the profile ``laptop`` does.
    """
    for layer in reversed(layers):
        keys, origin = layer.get("configs", (None, ""))
        if keys is not None:
            if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
                message = f"configs{set_by(origin)} has to be a list of configuration keys."
                raise BadSettings(message, hint='Write ["hearts_4p"].')
            return keys, origin
        profile, origin = layer.get("profile", (None, ""))
        if profile is not None:
            if profile not in PROFILES:
                message = f"There is no profile {profile!r}{set_by(origin)}."
                raise BadSettings(message, hint=f"Use {' or '.join(PROFILES)}.")
            return PROFILES[profile], origin
    return PROFILES["laptop"], DEFAULT


def _games(tables: Mapping[str, Any], origins: Mapping[str, str]) -> dict[str, GameConfig]:
    """Return the known configurations, changed and extended by the tables of ``games``."""
    games: dict[str, GameConfig] = {str(key): game for key, game in GAMES.items()}
    for key, table in tables.items():
        if key not in GAMES and (missing := NEEDED - table.keys()):
            origin = origins[next(name for name in origins if name.startswith(f"{GAME_TABLES}.{key}."))]
            if missing == NEEDED:
                raise _unknown(key, games, origin)
            raise BadSettings(
                f"[{GAME_TABLES}.{key}]{set_by(origin)} lacks {' and '.join(sorted(missing))}.",
                hint="A new configuration names its game and how many players it is for.",
            )
        if key not in GAMES and not CONFIG_KEY.fullmatch(key):
            words = re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_0123456789") or "mine"
            raise BadSettings(
                f"[{GAME_TABLES}.{key}] cannot be the name of a configuration.",
                hint="It consists of lower-case letters, digits and underscores, and ends with the number of players, "
                f"for instance [{GAME_TABLES}.{words}_{table.get('players', 2)}p].",
            )
        base: dict[str, Any] = GAMES[ConfigKey(key)].model_dump() if key in GAMES else {"key": key}
        network, wanted = base.get("network", {}), table.get("network", {})
        if isinstance(wanted, Mapping) and wanted.get("kind", network.get("kind")) != network.get("kind"):
            base["network"] = {}  # a network of another kind starts from that kind's defaults
        games[key] = _validated(GameConfig, _merged(base, table), f"{GAME_TABLES}.{key}.", origins)
    return games


def _unknown(key: str, games: Mapping[str, Any], origin: str) -> UnknownConfig:
    near = get_close_matches(key, games, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(sorted(games))}."
    new = f"A new one is a table [games.{key}] with game and players."
    return UnknownConfig(f"There is no configuration {key!r}{set_by(origin)}.", hint=f"{hint} {new}")


def _validated(
    model: type[M], data: Mapping[str, Any], prefix: str, origins: Mapping[str, str], default: str = DEFAULT
) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = (prefix + ".".join(map(str, first["loc"]))).rstrip(".")
        parent = key.rpartition(".")[0]
        near = [origin for name, origin in origins.items() if name.startswith((f"{key}.", f"{parent or key}."))]
        origin = origins.get(key) or origins.get(parent) or next(iter(near), default)
        what = first["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
        raise BadSettings(f"{key}{set_by(origin)}: {what}.", hint=_remedy(first)) from error


def _remedy(fault: ErrorDetails) -> str:
    """Return the remedy that a fault shows, or where to look."""
    given, see = fault["input"], "See: flyball config show"
    if fault["type"] == "tuple_type" and isinstance(given, str):
        try:
            words = shlex.split(given)
        except ValueError:  # a quotation mark alone
            words = given.split()
        return f"Write a list: {json.dumps(words)}"
    if fault["type"] == "literal_error":
        names = re.findall(r"'([^']*)'", fault.get("ctx", {}).get("expected", ""))
        near = get_close_matches(str(given), names, n=1)
        return f"Did you mean {near[0]}?" if near else see
    return see


def _check_thresholds(run: RunSettings, origins: Mapping[str, str]) -> None:
    """Refuse a configured quality threshold above ``intensity.reduced``.

    Settings in journals may have such a threshold; then the lower of the two counts.
    """
    reduced = run.feedback.intensity.reduced
    thresholds = {
        "min_quality": run.min_quality,
        "feedback.gauntlet.max_quality_threshold": run.feedback.gauntlet.max_quality_threshold,
    }
    for key, threshold in thresholds.items():
        if key in origins and threshold > reduced:
            raise BadSettings(
                f"{key}{set_by(origins[key])}: {threshold:g} lies above feedback.intensity.reduced {reduced:g}, the "
                "quality at which training begins.",
                hint=f"Lower {key}, or raise feedback.intensity.reduced.",
            )


def parse(assignments: Sequence[str]) -> dict[str, Any]:
    """Parse ``--set`` arguments into values by dotted key, as in ``flyball.toml``.

    Raises ``BadSettings`` for a key that is not a setting of a run.
    """
    values = dict(pair(assignment, "feedback.stall.velocity=3") for assignment in assignments)
    known = _layer(values, "", COMMAND_LINE)
    for key in known:
        if key.partition(".")[0] in NO_RUN_SETTING:
            raise BadSettings(f"{key} does not decide anything in a run.", hint="See: flyball config show")
    return {key: value for key, (value, _) in known.items()}


def pair(assignment: str, example: str) -> tuple[str, Any]:
    """Return the key and the value of ``key=value``.

    A value that is not TOML is text. Raises ``BadSettings`` with the example when there is no value.
    """
    key, equals, text = assignment.partition("=")
    if not equals:
        raise BadSettings(f"{assignment!r} has no value.", hint=f"Write {example}")
    return key.strip(), _read(text)


def _read(text: Any) -> Any:
    """Return the value of a text in TOML.

    Texts that are not TOML, and other values, stay unchanged.
    """
    try:
        return tomllib.loads(f"value = {text}")["value"] if isinstance(text, str) else text
    except tomllib.TOMLDecodeError:
        return text


def changed(settings: RunSettings, values: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return a run's changed settings, as RUN_CONFIGURED holds them.

    ``values`` are the changes by dotted key. Raises ``BadSettings`` for an invalid value or a configuration that the
    run does not have.
    """
    tree, changes = settings.model_dump(mode="json"), nest(values)
    games: dict[str, Any] = changes.pop(GAME_TABLES, {})
    configs = {config["key"]: config for config in tree["configs"]}
    if unknown := games.keys() - configs.keys():
        raise BadSettings(f"The run has no configuration {min(unknown)!r}.", hint=f"It has: {', '.join(configs)}.")
    tree["configs"] = [_merged(config, games.get(key, {})) for key, config in configs.items()]
    return _validated(RunSettings, _merged(tree, changes), "", {}, COMMAND_LINE).model_dump(mode="json")


def _merged(tree: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return nest(flatten(tree) | flatten(changes))


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one mapping of dotted keys.

    An empty table is a value.
    """
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        flat |= flatten(value, f"{key}.") if isinstance(value, Mapping) and value else {key: value}
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping of dotted keys as nested tables.

    The function is the inverse of ``flatten``. If a value and a table have the same key, the later one stays.
    """
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *tables, name = key.split(".")
        table = tree
        for step in tables:
            if not isinstance(table.get(step), dict):
                table[step] = {}
            table = table[step]
        table[name] = {} if value == {} else value
    return tree
