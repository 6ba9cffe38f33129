"""Settings of ``flyball train``: those that suit the game, changed by a file, then by single values."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from flyball.app.config.layers import (
    COMMAND_LINE,
    REMOVED,
    BadSettings,
    Document,
    Layer,
    flatten,
    merge,
    nest,
    parse_assignments,
    read_tables,
    set_by,
)
from flyball.app.config.pipeline import TABLES, TRAINED_BACKENDS, PipelineSettings, suited
from flyball.app.config.settings import GameConfig

DOCUMENT = Document([PipelineSettings], see="See: flyball train GAME --settings", left_out=REMOVED)
MEANINGS = DOCUMENT.meanings
"""The description of every setting, by dotted key."""


def training_settings(config: GameConfig, file: Path | None, values: Mapping[str, Any]) -> PipelineSettings:
    """Return the settings that suit the game, changed by ``file``, then by ``values``.

    ``values`` are by dotted key, or tables. Raises ``BadSettings``, which names the key and where it was set.
    """
    layers = [] if file is None else [DOCUMENT.layer(read_tables(file), str(file), f" in {file}")]
    layers.append(DOCUMENT.layer(values, COMMAND_LINE))
    chosen = (layer["backend"][0] for layer in reversed(layers) if "backend" in layer)
    backend = next(chosen, config.backend)
    if backend not in TRAINED_BACKENDS:
        raise BadSettings(
            f"flyball train knows the backends {' and '.join(TRAINED_BACKENDS)} only; {config.key} has backend = "
            f"{backend!r}.",
            hint="Train it in the loop, by flyball up; or set backend to one of them for this run.",
        )
    return _merged(suited(config, backend), layers, backend)


def changed(settings: PipelineSettings, values: Mapping[str, Any]) -> PipelineSettings:
    """Return a resumed run's settings with some of them changed. Raises ``BadSettings``."""
    layer = DOCUMENT.layer(values, COMMAND_LINE)
    backend, _ = layer.get("backend", (settings.backend, ""))
    return _merged(flatten(settings.model_dump(mode="json")), [layer], backend)


def _merged(base: Mapping[str, Any], layers: Sequence[Layer], backend: str) -> PipelineSettings:
    """Return settings changed by layers, which may not hold settings of another backend. Raises ``BadSettings``."""
    for other, table in TABLES.items():
        foreign = [
            (key, origin) for layer in layers for key, (_, origin) in layer.items() if key.startswith(f"{table}.")
        ]
        if other != backend and foreign:
            key, origin = foreign[0]
            raise BadSettings(
                f"{key}{set_by(origin)} is a setting of backend {other}, and this run has backend {backend}.",
                hint=f"Leave it out, or set backend={other}. See flyball train GAME --settings.",
            )
    values, origins = merge(base, layers)
    return DOCUMENT.validated(PipelineSettings, nest(values), origins, other="what suits the game")


def assigned(assignments: Sequence[str]) -> dict[str, Any]:
    """Return the values of ``key=value``, by key. Raises ``BadSettings``."""
    return parse_assignments(assignments, "ppo.learning_rate=3e-4")


def by_key(settings: PipelineSettings) -> dict[str, Any]:
    """Return all values by dotted key."""
    tree = settings.model_dump(mode="json")
    return {key: reduce(getitem, key.split("."), tree) for key in MEANINGS}
