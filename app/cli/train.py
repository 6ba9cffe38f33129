"""``flyball train``: a whole training run in one command and one process."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
import yaml
from pydantic import BaseModel, ValidationError
from rich.text import Text

from app.cli.options import FILE, FOLDER, SEED, Place, json_option, placed, set_option
from app.cli.output import data_only_on_stdout, show_table, write_json
from app.config import DEFAULT_BACKEND, GameConfig, PipelineSettings, nest, suited
from app.config.loading import BadSettings, pair

YAML = (".yaml", ".yml")
RENAMED = {"ppo.ppo_epochs": "ppo.epochs"}
"""Aliases of keys."""

STARTS = {"bc": "behavioral_clone", "random": "random"}


def _leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _leaves(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field.description or ""


LEAVES = dict(_leaves(PipelineSettings))
"""The description of every setting, by dotted key."""


@click.command()
@click.argument("config_key", metavar="GAME")
@click.option("--config", "file", type=FILE, help="Settings: TOML, or YAML.")
@set_option
@click.option("--start", type=click.Choice(list(STARTS)), help="From a clone of a bot, or at random.")
@click.option("--output", type=FOLDER, help="Folder of the run.  [default: training/GAME]")
@click.option("--seed", type=SEED, help="Of all that is drawn.  [default: 0]")
@click.option("--resume", is_flag=True, help="Go on with the run in the folder; it becomes what it would have become.")
@click.option("--settings", "only_settings", is_flag=True, help="Show every setting and what it means; train nothing.")
@json_option
@placed
def train(
    place: Place,
    config_key: str,
    *,
    file: Path | None,
    assignments: tuple[str, ...],
    start: str | None,
    output: Path | None,
    seed: int | None,
    resume: bool,
    only_settings: bool,
    as_json: bool,
) -> None:
    """Train a policy of GAME: collect games, estimate advantages, improve by PPO, evaluate, save; again and again.

    Settings are those that suit the game, unless a file or --set says otherwise; see --settings. The same settings and
    seed give the same weights, interrupted or not. In the folder: the models, the log, the curves and the report.
    """
    config = place.config(config_key)
    if config.backend != DEFAULT_BACKEND:
        raise BadSettings(
            f"flyball train knows the backend {DEFAULT_BACKEND} only; {config_key} has backend = {config.backend!r}.",
            hint="Train it in the loop: flyball up.",
        )
    chosen = (*assignments, *([f"collection.initial_policy={STARTS[start]}"] if start else []))
    if only_settings:
        _show_settings(training_settings(config, file, chosen), as_json=as_json)
        return
    from app.cli.training import train_game  # loads torch

    folder = output or Path("training") / config_key
    with data_only_on_stdout():
        settings_folder = str(place.load().folder.absolute())
        summary, words = train_game(config, file, chosen, seed, folder, resume=resume, settings_folder=settings_folder)
    if as_json:
        write_json(summary)
    else:
        click.echo(words, nl=False)


def _show_settings(settings: PipelineSettings, *, as_json: bool) -> None:
    values = by_key(settings)
    if as_json:
        write_json(values)
        return
    rows = []
    for key, meaning in LEAVES.items():
        value = "unset" if values[key] is None else json.dumps(values[key], ensure_ascii=False)
        rows.append((key, Text(value), Text(meaning)))  # Text: otherwise rich reads brackets as markup
    columns = ("setting", "value", "meaning")
    show_table(columns, rows, left=columns)


def training_settings(config: GameConfig, file: Path | None, assignments: Sequence[str]) -> PipelineSettings:
    """Return the settings of a run of a game. Raises ``BadSettings``, which names the key and where it was set."""
    layers = [("what suits the game", suited(config))]
    if file is not None:
        layers.append((str(file), _checked(_read(file), str(file))))
    layers.append(("--set", changes(assignments)))
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, layer in layers:
        values |= layer
        origins |= dict.fromkeys(layer, origin)
    return _validated(values, origins)


def changed(settings: PipelineSettings, assignments: Sequence[str]) -> PipelineSettings:
    """Return a resumed run's settings with some of them changed. Raises ``BadSettings``."""
    values = changes(assignments)
    return _validated(by_key(settings) | values, dict.fromkeys(values, "--set"))


def changes(assignments: Sequence[str]) -> dict[str, Any]:
    """Return the values of ``--set key=value``, by dotted key. Raises ``BadSettings``."""
    return _checked(nest(dict(pair(assignment, "ppo.learning_rate=3e-4") for assignment in assignments)), "--set")


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
        raise BadSettings(f"{place} ({where}): {what}{given}.", hint="See flyball train GAME --settings.") from error


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        tree = (yaml.safe_load(text) or {}) if path.suffix in YAML else tomllib.loads(text)
    except FileNotFoundError:
        raise BadSettings(f"There is no settings file {path}.", hint="Look at --config.") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BadSettings(f"{path} cannot be read: {error}.", hint="It has to be TOML, or YAML if .yaml.") from error
    if not isinstance(tree, Mapping):
        raise BadSettings(f"{path} holds no tables.", hint="Write tables such as [ppo], with keys below them.")
    return tree


def _checked(tree: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the values by dotted key. Raises ``BadSettings`` for an unknown key."""
    flat = {RENAMED.get(key, key): value for key, value in _flat(tree).items()}
    for key in flat:
        if key not in LEAVES:
            near = get_close_matches(key, [*LEAVES, *RENAMED], n=1)
            hint = f"Did you mean {near[0]}?" if near else "See flyball train GAME --settings."
            raise BadSettings(f"Unknown setting {key!r} in {where}.", hint=hint)
    return flat


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return values by dotted key; a setting that is itself a mapping stays one."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        is_table = isinstance(value, Mapping) and key not in LEAVES
        flat |= _flat(value, f"{key}.") if is_table else {key: value}
    return flat
