"""``flyball train`` of a text game."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.text import Text

from app.api.runs import Place
from app.cli.output import data_only_on_stdout, echo, note, show_table, write_json
from app.config import GameConfig, flatten


def train_text_game(
    place: Place,
    config: GameConfig,
    folder: Path,
    values: Mapping[str, Any],
    seed: int | None,
    *,
    resume: bool,
    only_settings: bool,
    as_json: bool,
) -> None:
    """Train an adapter and show the progress, or show the settings."""
    from app.language.run import text_settings, train_text  # loads torch

    if only_settings:
        changed, loop = text_settings(config, values)
        shown = loop.model_dump(mode="json") | flatten({"language": changed.language.model_dump(mode="json")})
        if as_json:
            write_json(shown)
        else:
            columns = ("setting", "value")
            show_table(columns, [(key, Text(json.dumps(value))) for key, value in shown.items()], left=columns)
        return
    loaded = place.load()
    servers = loaded.deployment.text_servers(folder, loaded.folder)
    with data_only_on_stdout():
        report = train_text(config, folder, values, seed, resume=resume, say=note, servers=servers)
    if as_json:
        write_json(report)
    else:
        echo(f"Adapter {report['model']} after {report['iterations']} iterations; its report is in {folder}.")
