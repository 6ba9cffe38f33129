"""Settings of a run folder, from four layers, and changes to them.

The layers are the defaults, ``flyball.toml``, environment variables (``FLYBALL_LEAGUE__MATCHMAKING``) and the command
line; later ones override earlier ones, key by key. Every key is checked where it is read, so that an error names its
file or variable and the nearest key. It names no origin of what the caller just gave, because that may be an option, a
field of a form or an argument in Python. A change (``--set KEY=VALUE``) applies to settings that are in force already.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import Field, JsonValue, create_model
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

from flyball.app.config.base import FrozenModel
from flyball.app.config.deployment import Deployment, RunFolder
from flyball.app.config.devices import JobKind
from flyball.app.config.games import GAMES
from flyball.app.config.layers import (
    COMMAND_LINE,
    DEFAULT,
    BadSettings,
    Document,
    Layer,
    change,
    flatten,
    merge,
    nest,
    parse_assignments,
    parse_value,
    read_tables,
    set_by,
)
from flyball.app.config.observing import ObservedFile, RuleName
from flyball.app.config.run import MATCHMAKING, PROFILES, RunSettings
from flyball.app.config.settings import CONFIG_KEY, GameConfig, Modules
from flyball.app.core import ConfigKey, allow_modules_in, suggest

ENV_PREFIX = "FLYBALL_"
RESERVED = frozenset({"FLYBALL_RUN", "FLYBALL_CONFIG_FILE"})
"""Variables that name the run folder and the settings file, not settings."""

GAME_TABLES = "games"
IMPORT = "import"
"""Modules imported before a game is loaded, for games that register themselves with OpenSpiel."""

MATCHMAKING_TABLE = "league.matchmaking"
"""The table that may also be the name of a preset."""

JOURNAL_TABLE = "deployment.journal"
"""The table that may also be a database's URL."""

SHORTHANDS = (MATCHMAKING_TABLE, JOURNAL_TABLE, "deployment.device", "deployment.precision")
"""Tables that may have a single value; that of the last two stands for all kinds of jobs."""

NEEDED = frozenset({"game", "players"})
"""Required keys of a new configuration."""

OBSERVE = "observe"
"""Tables of files of an observed loop, by the names of their rules."""

NO_RUN_SETTING = frozenset({"profile", "configs", "deployment", IMPORT, OBSERVE})
"""Keys of ``flyball.toml`` that RUN_CONFIGURED does not hold in this form."""

IMPORTS = create_model("Imports", __base__=FrozenModel, **cast("dict[str, Any]", {IMPORT: (Modules, ())}))
"""The setting ``import``, which every configuration gets. Python's syntax forbids a field of that name."""

OBSERVED = create_model(
    "Observed", __base__=FrozenModel, **cast("dict[str, Any]", {OBSERVE: (dict[RuleName, ObservedFile], {})})
)
"""The tables of ``observe``."""


def _flyball_toml() -> type[BaseSettings]:
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
        OBSERVE: (
            dict[RuleName, ObservedFile],
            Field({}, description="files of an observed loop, by the names of their rules; mode = advise"),
        ),
        GAME_TABLES: (dict[str, GameConfig], {}),
    }
    return cast("type[BaseSettings]", create_model("FlyballToml", __base__=BaseSettings, **fields))


FLYBALL_TOML = _flyball_toml()
"""The shape of ``flyball.toml``."""

DOCUMENT = Document(
    [FLYBALL_TOML],
    see="See: flyball config show",
    left_out={GAME_TABLES, "games.*.key", "games.*.imports"},
    shorthands=SHORTHANDS,
)


class UnknownConfig(BadSettings, code="unknown"):
    """No game configuration has this key."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings and their origins."""

    run: RunSettings  # what is played and learned; journaled
    deployment: Deployment  # how and where this installation runs
    games: Mapping[str, GameConfig]  # all configurations that could be chosen
    observe: Mapping[str, ObservedFile]  # files of an observed loop, by rule
    folder: Path  # of the settings file
    origins: Mapping[str, str]  # by dotted key: default, the file's name, "environment FLYBALL_X", or "command line"

    def store(self, run: RunFolder) -> str:
        """Return the folder or URL of the run's store; see ``flyball.app.store.open_store``."""
        return self.deployment.store_name(run, self.folder)

    @property
    def ship(self) -> str | None:
        """The folder or URL to which the journal is shipped; None without one."""
        return self.deployment.ship_name(self.folder)

    def values(self) -> dict[str, Any]:
        """Return every effective value by dotted key, as in ``flyball.toml``."""
        configs = self.run.configs
        top = self.run.model_dump(mode="json")
        top |= {"configs": [config.key for config in configs], IMPORT: list(configs[0].imports)}
        games = {config.key: config.model_dump(mode="json", exclude={"key", "imports"}) for config in configs}
        observed = {name: rule.model_dump(mode="json") for name, rule in self.observe.items()}
        deployment = self.deployment.model_dump(mode="json")
        return flatten(top | {"deployment": deployment, GAME_TABLES: games} | ({OBSERVE: observed} if observed else {}))


def load(run_dir: Path, overrides: Mapping[str, Any] | None = None, *, config_file: Path | None = None) -> Loaded:
    """Load the settings of the run in a folder.

    The folder may not exist yet. Modules beside the settings can be imported afterwards.

    Args:
        run_dir: the run folder.
        overrides: nested tables as in ``flyball.toml``, from the caller: a command, or a function's arguments.
        config_file: read instead of ``flyball.toml`` in the run folder.

    Raises ``BadSettings``, also as ``UnknownConfig``.
    """
    file = config_file or RunFolder(run_dir).settings
    allow_modules_in(file.parent)
    layers = (
        _layer(read_tables(file, optional=config_file is None), file.name, f" in {file}"),
        _environment_layer(),
        _layer(overrides or {}, COMMAND_LINE),
    )
    effective, origins = merge({}, layers)
    tables = nest(effective)
    keys, origins["configs"] = _chosen(layers)
    deployment = DOCUMENT.validated(Deployment, tables.get("deployment", {}), origins, "deployment.")
    games = _games(tables.get(GAME_TABLES, {}), origins)
    document = {name: value for name, value in tables.items() if name in RunSettings.model_fields}
    if "selfplay_workers" not in document:
        setting = "deployment.other_head" if deployment.other_head else "deployment.node"
        node = "head" if deployment.other_head else deployment.node  # because two heads have the same settings
        document["selfplay_workers"] = [f"selfplay_worker@{node}"]
        origins["selfplay_workers"] = origins.get(setting, DEFAULT)
    if unknown := [key for key in keys if key not in games]:
        raise _unknown(unknown[0], games, origins["configs"])
    imports = DOCUMENT.validated(IMPORTS, {IMPORT: tables.get(IMPORT, ())}, origins).model_dump()[IMPORT]
    games = {key: game.replace(imports=imports) for key, game in games.items()}
    run = DOCUMENT.validated(RunSettings, document | {"configs": [games[key] for key in keys]}, origins)
    _check_thresholds(run, origins)
    observe: Mapping[str, ObservedFile] = getattr(
        DOCUMENT.validated(OBSERVED, {OBSERVE: tables.get(OBSERVE, {})}, origins), OBSERVE
    )
    _check_observed(observe, run)
    loaded = Loaded(run, deployment, games, observe, file.parent, origins)
    return replace(loaded, origins={key: origins.get(key, DEFAULT) for key in loaded.values()})


def _layer(values: Mapping[str, Any], origin: str | Callable[[str], str], where: str = "") -> Layer:
    """Return ``Document.layer``, with shorthands written out, so that other layers can change some of their values."""
    layer = DOCUMENT.layer(values, origin, where)
    for table in layer.keys() & SHORTHANDS:
        value, source = layer.pop(table)
        written_out: dict[str, Any]
        if table == JOURNAL_TABLE:
            written_out = {"url": value}
        elif table != MATCHMAKING_TABLE:
            written_out = dict.fromkeys(get_args(JobKind), value)
        elif preset := MATCHMAKING.get(str(value)):
            written_out = preset.model_dump(mode="json")
        else:
            message = f"{MATCHMAKING_TABLE}{where} is {value!r}, which is no preset."
            raise BadSettings(message, hint=f"There are: {', '.join(MATCHMAKING)}. Or write a table.")
        layer = {f"{table}.{name}": (value, source) for name, value in written_out.items()} | layer
    return layer


def _environment_layer() -> Layer:
    """Read the variables that begin with ``FLYBALL_``; two underscores separate tables."""
    for name in {name.upper() for name in os.environ} - RESERVED:
        if name.startswith(ENV_PREFIX):
            key = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            DOCUMENT.layer({key: None}, "", f" in the environment variable {name}")
    try:
        tree = _Environment(FLYBALL_TOML, env_prefix=ENV_PREFIX, env_nested_delimiter="__")()
    except SettingsError as error:
        raise BadSettings(f"{error}.", hint='Lists are written as JSON: ["one", "two"].') from error
    values = {key: parse_value(value) if DOCUMENT.is_mapping(key) else value for key, value in flatten(tree).items()}
    return _layer(values, lambda key: f"environment {variable(key)}", " in the environment")


class _Environment(EnvSettingsSource):
    """Source of environment variables; a table's holds JSON, or the value of a shorthand."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return a table's or a list's value."""
        if f".{field_name}" in {key[key.index(".") :] for key in SHORTHANDS} and not value.startswith(("{", '"')):
            return value
        return super().decode_complex_value(field_name, field, value)


def variable(key: str) -> str:
    """Return the environment variable that sets a dotted key."""
    return ENV_PREFIX + key.upper().replace(".", "__")


def _chosen(layers: Sequence[Layer]) -> tuple[Sequence[str], str]:
    """Return the configurations to run: of the last layer with ``configs`` or ``profile``; and their origin."""
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
    """Return the configurations of ``GAMES``, changed and extended by the tables of ``games``."""
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
        base = GAMES[ConfigKey(key)].model_dump() if key in GAMES else {"key": key}
        tree = nest(change(flatten(base), flatten(table)))
        games[key] = DOCUMENT.validated(GameConfig, tree, origins, f"{GAME_TABLES}.{key}.")
    return games


def _unknown(key: str, games: Mapping[str, Any], origin: str) -> UnknownConfig:
    new = f"A new one is a table [games.{key}] with game and players."
    return UnknownConfig(f"There is no configuration {key!r}{set_by(origin)}.", hint=f"{suggest(key, games)} {new}")


def _check_thresholds(run: RunSettings, origins: Mapping[str, str]) -> None:
    """Refuse a quality threshold above ``intensity.reduced``; of such settings in journals, the lower counts."""
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


def _check_observed(rules: Mapping[str, ObservedFile], run: RunSettings) -> None:
    """Refuse files that a run could not use."""
    if rules and not run.advises:
        raise BadSettings(
            "Files of an observed loop are for a run that only advises, and this one asks for work itself.",
            hint=f'Set mode = "advise", or leave the tables of {OBSERVE} out.',
        )
    for name, rule in rules.items():
        if rule.config is None and len(run.configs) > 1:
            raise BadSettings(
                f"[{OBSERVE}.{name}] does not say which configuration it is about.",
                hint=f"Set config to one of {', '.join(config.key for config in run.configs)}.",
            )
        if rule.config is not None and rule.config not in run:
            raise BadSettings(
                f"[{OBSERVE}.{name}] is about {rule.config}, which the run does not have.",
                hint=f"Set config to one of {', '.join(config.key for config in run.configs)}.",
            )
        if unknown := sorted(rule.names.keys() - {*run.config(rule.config or run.configs[0].key).builtins}):
            raise BadSettings(
                f"[{OBSERVE}.{name}] names the bot {unknown[0]}, which the configuration does not have.",
                hint=f"Add it to games.{rule.config or run.configs[0].key}.builtins.",
            )


def parse(assignments: Sequence[str]) -> dict[str, Any]:
    """Return the values of ``--set``, by dotted key. Raises ``BadSettings`` for a key that is no setting of a run."""
    layer = _layer(parse_assignments(assignments, "feedback.stall.velocity=3"), COMMAND_LINE)
    for key in layer:
        if key.partition(".")[0] in NO_RUN_SETTING:
            raise BadSettings(f"{key} does not decide anything in a run.", hint="See: flyball config show")
    return {key: value for key, (value, _) in layer.items()}


def changed(settings: RunSettings, values: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return a run's settings with changes by dotted key, as RUN_CONFIGURED holds them.

    Raises ``BadSettings`` for an invalid value or a configuration that the run does not have.
    """
    tree, changes = settings.model_dump(mode="json"), nest(values)
    games: dict[str, Any] = changes.pop(GAME_TABLES, {})
    configs = {config["key"]: config for config in tree["configs"]}
    if unknown := games.keys() - configs.keys():
        raise BadSettings(f"The run has no configuration {min(unknown)!r}.", hint=f"It has: {', '.join(configs)}.")
    tree["configs"] = [nest(change(flatten(config), flatten(games.get(key, {})))) for key, config in configs.items()]
    tree = nest(change(flatten(tree), flatten(changes)))
    return DOCUMENT.validated(RunSettings, tree, {}, other=COMMAND_LINE).model_dump(mode="json")
