"""Settings of a run with some of them changed, as ``--set KEY=VALUE`` says."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue, ValidationError

from app.config import RunSettings, nest
from app.runtime.layers import GAME_TABLES, BadSettings, Layer, checked

WHERE = "--set"
NO_RUN_SETTING = frozenset({"profile", "configs", "deployment"})
"""Keys of ``flyball.toml`` that RUN_CONFIGURED does not hold in this form."""


def parse(assignments: Sequence[str]) -> dict[str, Any]:
    """Read ``key=value`` pairs: dotted keys as in ``flyball.toml``, values as in TOML; other values are text.

    Raises:
        BadSettings: a pair has no value, or its key is no setting of a run; names the nearest.
    """
    values = dict(pair(assignment, "feedback.stall.velocity=3") for assignment in assignments)
    known = checked(Layer(WHERE, values), WHERE).values
    for key in known:
        if key.partition(".")[0] in NO_RUN_SETTING:
            raise BadSettings(f"{key} ({WHERE}) does not decide anything in a run.", hint="See: flyball config show")
    return dict(known)


def pair(assignment: str, example: str) -> tuple[str, Any]:
    """Return the key and the value of ``key=value``; what is no value of TOML is text.

    Raises ``BadSettings``, which gives the example, when it has no value.
    """
    key, equals, text = assignment.partition("=")
    if not equals:
        raise BadSettings(f"{assignment!r} ({WHERE}) has no value.", hint=f"Write {example}")
    try:
        return key.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), text


def changed(settings: RunSettings, values: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return a run's settings with some of them changed, as RUN_CONFIGURED holds them.

    Args:
        settings: of the run.
        values: by dotted key; ``games.<configuration>.…`` for those of one configuration.

    Raises:
        BadSettings: a value can't be used, or the run has no such configuration.
    """
    tree = settings.model_dump(mode="json")
    wanted = nest(values)
    games: dict[str, Any] = wanted.pop(GAME_TABLES, {})
    configs = {config["key"]: config for config in tree["configs"]}
    if unknown := games.keys() - configs.keys():
        raise BadSettings(f"The run has no configuration {min(unknown)!r}.", hint=f"It has: {', '.join(configs)}.")
    try:
        return RunSettings.model_validate(
            _merged(tree, wanted) | {"configs": _changed_games(configs, games)}
        ).model_dump(mode="json")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key, what = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        raise BadSettings(f"{key} ({WHERE}): {what}.", hint="See: flyball config show") from error


def _changed_games(configs: Mapping[str, Any], games: Mapping[str, Any]) -> list[Any]:
    return [_merged(config, games.get(key, {})) for key, config in configs.items()]


def _merged(tree: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(tree)
    for name, value in changes.items():
        merged[name] = _merged(merged[name], value) if isinstance(value, Mapping) else value
    return merged
