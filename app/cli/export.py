"""``flyball export``: a model as files for other programs, or a run for an experiment tracker."""

from pathlib import Path

import click

from flyball.app.api.runs import RunLocation
from flyball.app.cli.options import json_option, run_options
from flyball.app.cli.output import complain, data_only_on_stdout, note, write_values
from flyball.app.telemetry import MlflowTracker, Tracker, WandbTracker

TRACKERS = ("mlflow", "wandb")


@click.command()
@click.argument("what")
@click.argument("to")
@click.option(
    "--config", "config_key", metavar="KEY", help="Whose model 'current' is; of a run, only this configuration."
)
@json_option
@run_options
def export(location: RunLocation, what: str, to: str, *, config_key: str | None, as_json: bool) -> None:
    """Write a model into a file, or the run into MLflow or Weights & Biases. WHAT says which.

    A model: WHAT is a file, a folder of 'flyball train' (its best), a hash, or 'current' with --config. TO is a file
    that ends with .npz or .json, for its policy and critic. The command prints what was written. app/portable.py
    describes the formats, and plays such files with nothing but NumPy. 'flyball eval --model FILE' evaluates them. If
    WHAT is an adapter of a language model, TO is a folder. The adapter and a small base model become folders in it,
    which PEFT, transformers and vLLM load.

    The run: WHAT is mlflow or wandb. Each configuration becomes a run there, with its ratings, curves of training,
    knobs, counts of decisions, settings, and the latest decisions as a note. The run may still be running. Repeating
    the command adds the events since. With mlflow, TO is a folder, which gets a database, or the address of a server.
    With wandb, TO is a folder, to be sent by 'wandb sync'. Both are extras: pip install 'flyball[mlflow]'
    or 'flyball[wandb]'.
    """
    if what in TRACKERS:
        _export_run(location, what, to, config_key, as_json=as_json)
    else:
        _export_model(location, what, Path(to), config_key, as_json=as_json)


def _export_run(location: RunLocation, what: str, to: str, config_key: str | None, *, as_json: bool) -> None:
    from flyball.app.api.exporting import export_run  # imports all controllers

    with data_only_on_stdout():  # W&B prints
        tracker: Tracker = MlflowTracker(to) if what == "mlflow" else WandbTracker(Path(to))
        written = export_run(location, tracker, config_key, complain)
    write_values(written, as_json=as_json)
    note(f"Wrote to {to}; counts are events with values. Next: {tracker.command}")


def _export_model(location: RunLocation, model: str, file: Path, config_key: str | None, *, as_json: bool) -> None:
    from flyball.app.api.models import fetch_model
    from flyball.app.core import HEURISTIC, RANDOM, is_judge
    from flyball.app.language.generator import LORA
    from flyball.app.store import MemoryStore, export_checkpoint, get_checkpoint

    if model in (RANDOM, HEURISTIC) or is_judge(model):
        raise click.UsageError(f"WHAT: {model} is a bot and has no parameters; name a model.")
    store = MemoryStore()
    checkpoint = get_checkpoint(store, fetch_model(model, "WHAT", location, config_key, store, say=note))
    if checkpoint.manifest.content == LORA:
        from flyball.app.api.text_players import export_text_model  # loads torch and transformers

        paths = export_text_model(model, location, store, checkpoint.model, file)
        write_values(
            {**paths, "config_key": checkpoint.manifest.config_key, "model": checkpoint.model}, as_json=as_json
        )
        return
    policy = export_checkpoint(checkpoint, file)
    values = {
        "file": str(file),
        "game": policy.game,
        "model": policy.model,
        "content_hash": policy.content_hash,
        **{name: value for name, value in policy.architecture.items() if name not in ("type", "activation")},
    }
    write_values(values, as_json=as_json)
