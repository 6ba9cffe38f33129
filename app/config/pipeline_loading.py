"""Settings of a training run, from three layers.

The settings that suit the game are changed by a file, then by single values.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from app.config.loading import COMMAND_LINE, BadSettings, flatten, nest, pair, set_by
from app.config.pipeline import TABLES, TRAINED_BACKENDS, PipelineSettings, TrunkSettings, suited
from app.config.settings import MLP, GameConfig

YAML = (".yaml", ".yml")
RENAMED = {"ppo.ppo_epochs": "ppo.epochs"}
"""Aliases of keys."""

BACKEND, KIND, OPTIONS = "backend", "network.kind", "network.options"
OF_KIND = frozenset(
    f"network.{name}" for name in TrunkSettings.model_fields.keys() - {"kind", "obs_dim", "action_dim", "shared_trunk"}
)
"""Settings of networks that depend on their kind."""


def _leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _leaves(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field.description or ""


LEAVES = dict(_leaves(PipelineSettings))
"""The description of every setting, by dotted key."""


def training_settings(config: GameConfig, file: Path | None, values: Mapping[str, Any]) -> PipelineSettings:
    """Return a run's settings, from three layers.

    The settings that suit the game are changed by ``file``, then by ``values``. ``values`` are by dotted key, or
    tables. Raises ``BadSettings``, which names the key and where it was set.
    """
    given = [] if file is None else [(str(file), _checked(_read(file), f" in {file}"))]
    given.append((COMMAND_LINE, _checked(nest(flatten(values)))))
    backend = next((layer[BACKEND] for _, layer in reversed(given) if BACKEND in layer), config.backend)
    _check_backend(config, backend)
    for origin, layer in given:
        _check_tables(layer, origin, backend)
    layers = [("what suits the game", suited(config, backend)), *given]
    effective: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers:
        effective = _changed_by(layer, effective)
        origins |= dict.fromkeys(layer, origin)
    return _validated(effective, origins)


def _changed_by(layer: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values changed by a layer, by dotted key.

    A network of another kind starts from its defaults. One of the same kind keeps the options that the layer lacks.
    """
    kind = values.get(KIND, MLP)
    if layer.get(KIND, kind) != kind:
        values = {key: value for key, value in values.items() if key not in OF_KIND}
    options = {OPTIONS: values.get(OPTIONS, {}) | layer[OPTIONS]} if layer.get(OPTIONS) else {}
    return {**values, **layer, **options}


def _check_backend(config: GameConfig, backend: Any) -> None:
    """Refuse a backend that training runs do not know. Raises ``BadSettings``."""
    if backend not in TRAINED_BACKENDS:
        raise BadSettings(
            f"flyball train knows the backends {' and '.join(TRAINED_BACKENDS)} only; {config.key} has backend = "
            f"{backend!r}.",
            hint="Train it in the loop, by flyball up; or set backend to one of them for this run.",
        )


def _check_tables(layer: Mapping[str, Any], origin: str, backend: str) -> None:
    """Refuse settings of another backend than the run's. Raises ``BadSettings``."""
    for theirs, table in TABLES.items():
        foreign = [key for key in layer if key.startswith(f"{table}.")]
        if theirs != backend and foreign:
            raise BadSettings(
                f"{foreign[0]}{set_by(origin)} is a setting of backend {theirs}, and this run has backend {backend}.",
                hint=f"Leave it out, or set backend={theirs}. See flyball train GAME --settings.",
            )


def changed(settings: PipelineSettings, values: Mapping[str, Any]) -> PipelineSettings:
    """Return a resumed run's settings with some of them changed. Raises ``BadSettings``."""
    changes = _checked(nest(flatten(values)))
    _check_tables(changes, COMMAND_LINE, changes.get(BACKEND, settings.backend))
    return _validated(by_key(settings) | changes, dict.fromkeys(changes, COMMAND_LINE))


def assigned(assignments: Sequence[str]) -> dict[str, Any]:
    """Return the values of ``key=value``, by key. Raises ``BadSettings``."""
    return dict(pair(assignment, "ppo.learning_rate=3e-4") for assignment in assignments)


def by_key(settings: PipelineSettings) -> dict[str, Any]:
    """Return all values by dotted key."""
    return _flat(settings.model_dump(mode="json"))


def _validated(values: Mapping[str, Any], origins: Mapping[str, str]) -> PipelineSettings:
    try:
        return PipelineSettings.model_validate(nest(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        key = next((known for known in LEAVES if place == known or place.startswith(f"{known}.")), place)
        what = first["msg"].removeprefix("Value error, ")
        given = "" if isinstance(first["input"], Mapping) else f", not {first['input']!r}"
        where = origins.get(key, "together")
        raise BadSettings(
            f"{place}{set_by(where)}: {what}{given}.", hint="See flyball train GAME --settings."
        ) from error


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        tree = (yaml.safe_load(text) or {}) if path.suffix in YAML else tomllib.loads(text)
    except FileNotFoundError:
        raise BadSettings(f"There is no settings file {path}.", hint="Look at its name.") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BadSettings(f"{path} cannot be read: {error}.", hint="It has to be TOML, or YAML if .yaml.") from error
    if not isinstance(tree, Mapping):
        raise BadSettings(f"{path} holds no tables.", hint="Write tables such as [ppo], with keys below them.")
    return tree


def _checked(tree: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Return the values by dotted key. Raises ``BadSettings`` for an unknown key."""
    flat = {RENAMED.get(key, key): value for key, value in _flat(tree).items()}
    for key in flat:
        if key not in LEAVES:
            near = get_close_matches(key, [*LEAVES, *RENAMED], n=1)
            hint = f"Did you mean {near[0]}?" if near else "See flyball train GAME --settings."
            raise BadSettings(f"Unknown setting {key!r}{where}.", hint=hint)
    return flat


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return values by dotted key.

    A setting that is itself a mapping stays one.
    """
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        is_table = isinstance(value, Mapping) and key not in LEAVES
        flat |= _flat(value, f"{key}.") if is_table else {key: value}
    return flat
