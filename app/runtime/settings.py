"""Loading settings: defaults, then ``flyball.toml``, then the environment, then the command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from app.config import GAMES, PROFILES, Deployment, GameConfig, RunFolder, RunSettings, flatten, nest
from app.core import ConfigKey
from app.runtime.layers import GAME_TABLES, BadSettings, Layer, checked, environment_layer, file_layer

DEFAULT, COMMAND_LINE = "default", "command line"
NEEDED = frozenset({"game", "players"})
"""Required keys of a new configuration."""

M = TypeVar("M", bound=BaseModel)


class UnknownConfig(BadSettings):
    """No game configuration has this key."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and where each comes from.

    Attributes:
        run: what is played and learned; journaled.
        deployment: how and where this installation runs.
        games: all configurations that could be chosen, chosen or not.
        origins: for each dotted key: default, the file's name, ``environment FLYBALL_X`` or ``command line``.
    """

    run: RunSettings
    deployment: Deployment
    games: Mapping[str, GameConfig]
    origins: Mapping[str, str]

    def values(self) -> dict[str, Any]:
        """Return every effective value by dotted key, as ``flyball.toml`` would say it."""
        return _values(self.run, self.deployment)


def load(run_dir: Path, overrides: Mapping[str, Any] | None = None, *, config_file: Path | None = None) -> Loaded:
    """Load the settings of the run in a folder.

    Args:
        run_dir: the run folder; may not exist yet.
        overrides: nested tables as in ``flyball.toml``, from the command line.
        config_file: read instead of ``flyball.toml`` in the run folder.

    Raises:
        BadSettings: a key means nothing or a value cannot be used; names where it comes from.
        UnknownConfig: a configuration is asked for that nobody defined.
    """
    if config_file is not None and not config_file.is_file():
        raise BadSettings(f"There is no settings file {config_file}.", hint="Look at --config-file.")
    layers = (
        file_layer(config_file or RunFolder(run_dir).settings),
        environment_layer(),
        checked(Layer(COMMAND_LINE, flatten(overrides or {})), f"the {COMMAND_LINE}"),
    )
    return _assemble(layers)


def _assemble(layers: Sequence[Layer]) -> Loaded:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        values |= layer.values
        origins |= {key: layer.origin_of(key) for key in layer.values}
    keys, origins["configs"] = _chosen(layers)
    tables = nest(values)
    deployment = _validated(Deployment, tables.get("deployment", {}), "deployment.", origins)
    games = _games(tables.get(GAME_TABLES, {}), origins)
    document = {name: value for name, value in tables.items() if name in RunSettings.model_fields}
    if "selfplay_workers" not in document:
        document["selfplay_workers"] = [f"selfplay_worker@{deployment.node}"]
        origins["selfplay_workers"] = origins.get("deployment.node", DEFAULT)
    chosen = [_known(key, games, origins["configs"]) for key in keys]
    run = _validated(RunSettings, document | {"configs": chosen}, "", origins)
    _check_thresholds(run, origins)
    return Loaded(run, deployment, games, {key: origins.get(key, DEFAULT) for key in _values(run, deployment)})


def _check_thresholds(run: RunSettings, origins: Mapping[str, str]) -> None:
    """Refuse a quality threshold that has no effect; in journals the lower bound counts."""
    reduced = run.feedback.intensity.reduced
    told = {
        "min_quality": run.min_quality,
        "feedback.gauntlet.max_quality_threshold": run.feedback.gauntlet.max_quality_threshold,
    }
    for key, threshold in told.items():
        if key in origins and threshold > reduced:
            raise BadSettings(
                f"{key} ({origins[key]}): {threshold:g} lies above feedback.intensity.reduced {reduced:g}, the "
                "quality at which training begins.",
                hint=f"Lower {key}, or raise feedback.intensity.reduced.",
            )


def _chosen(layers: Sequence[Layer]) -> tuple[Sequence[str], str]:
    """Return the keys of the configurations to run: the uppermost layer that names any, or a profile, decides."""
    for layer in reversed(layers):
        if (keys := layer.values.get("configs")) is not None:
            return _string_list(keys, layer.origin_of("configs")), layer.origin_of("configs")
        if (profile := layer.values.get("profile")) is not None:
            origin = layer.origin_of("profile")
            if profile not in PROFILES:
                raise BadSettings(f"There is no profile {profile!r} ({origin}).", hint=f"Use {' or '.join(PROFILES)}.")
            return PROFILES[profile], origin
    return PROFILES["laptop"], DEFAULT


def _string_list(keys: object, origin: str) -> Sequence[str]:
    if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
        raise BadSettings(f"configs ({origin}) has to be a list of configuration keys.", hint='Write ["hearts_4p"].')
    return keys


def _games(tables: Mapping[str, Any], origins: Mapping[str, str]) -> dict[str, GameConfig]:
    games: dict[str, GameConfig] = {str(key): game for key, game in GAMES.items()}
    for key, table in tables.items():
        if key not in GAMES and (missing := NEEDED - table.keys()):
            origin = origins[next(name for name in origins if name.startswith(f"{GAME_TABLES}.{key}."))]
            raise _unknown(key, games, origin) if missing == NEEDED else _incomplete(key, missing, origin)
        base = flatten(GAMES[ConfigKey(key)].model_dump()) if key in GAMES else {"key": key}
        games[key] = _validated(GameConfig, nest(base | flatten(table)), f"{GAME_TABLES}.{key}.", origins)
    return games


def _incomplete(key: str, missing: frozenset[str], origin: str) -> BadSettings:
    return BadSettings(
        f"[{GAME_TABLES}.{key}] ({origin}) lacks {' and '.join(sorted(missing))}.",
        hint="A new configuration names its game and how many players it is for.",
    )


def _known(key: str, games: Mapping[str, GameConfig], origin: str) -> GameConfig:
    if key not in games:
        raise _unknown(key, games, origin)
    return games[key]


def _unknown(key: str, games: Mapping[str, Any], origin: str) -> UnknownConfig:
    near = get_close_matches(key, games, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(sorted(games))}."
    new = f"A new one is a table [games.{key}] with game and players."
    return UnknownConfig(f"There is no configuration {key!r} ({origin}).", hint=f"{hint} {new}")


def _validated(model: type[M], data: Mapping[str, Any], prefix: str, origins: Mapping[str, str]) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = (prefix + ".".join(map(str, first["loc"]))).rstrip(".")
        origin = origins.get(key) or origins.get(key.rpartition(".")[0], DEFAULT)
        what = first["msg"].removeprefix("Value error, ")
        raise BadSettings(f"{key} ({origin}): {what}.", hint="See: flyball config show") from error


def _values(run: RunSettings, deployment: Deployment) -> dict[str, Any]:
    top = run.model_dump(mode="json", exclude={"configs"}) | {"configs": [config.key for config in run.configs]}
    games = {config.key: config.model_dump(mode="json", exclude={"key"}) for config in run.configs}
    return flatten(top | {"deployment": deployment.model_dump(mode="json"), GAME_TABLES: games})
