"""``flyball train``: a whole training run in one command and one process."""

import json
from pathlib import Path

import click

from app.cli.output import data_only_on_stdout, show, write_json
from app.cli.place import Place, json_option, placed
from app.config import PipelineSettings

STARTS = {"bc": "behavioral_clone", "random": "random"}


@click.command()
@click.argument("config_key", metavar="GAME")
@click.option("--config", "file", type=click.Path(dir_okay=False, path_type=Path), help="Settings: TOML, or YAML.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Change a setting; repeatable.")
@click.option("--start", type=click.Choice(list(STARTS)), help="From a clone of a bot, or at random.")
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder of the run.  [default: training/GAME]"
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Of all that is drawn.  [default: 0]")
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
    seed give the same weights, interrupted or not. In the folder: the models, and all that the run tells of itself.
    """
    from app.cli.pipeline_settings import training_settings

    config = place.load({"configs": [config_key]}).run.config(config_key)
    chosen = (*assignments, *([f"collection.initial_policy={STARTS[start]}"] if start else []))
    if only_settings:
        _show(training_settings(config, file, chosen), as_json=as_json)
        return
    from app.cli.training import TrainRequest, train_game  # loads torch

    folder = output or Path("training") / config_key
    with data_only_on_stdout():
        summary, words = train_game(TrainRequest(config, file, chosen, seed, folder, resume))
    if as_json:
        write_json(summary)
    else:
        click.echo(words, nl=False)


def _show(settings: PipelineSettings, *, as_json: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from app.cli.pipeline_settings import LEAVES, by_key

    values = by_key(settings)
    if as_json:
        write_json(values)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("setting", "value", "meaning"):
        table.add_column(name)
    for key, meaning in LEAVES.items():
        value = "unset" if values[key] is None else json.dumps(values[key], ensure_ascii=False)
        table.add_row(key, Text(value), Text(meaning))  # brackets are no markup
    show(table)
