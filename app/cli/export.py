"""``flyball export``: a model as files for other programs."""

from pathlib import Path

import click

from app.api.runs import RunLocation
from app.cli.options import json_option, run_options
from app.cli.output import note, write_values


@click.command()
@click.argument("model")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--config", "config_key", metavar="KEY", help="Whose model is meant by 'current'.")
@json_option
@run_options
def export(location: RunLocation, model: str, file: Path, *, config_key: str | None, as_json: bool) -> None:
    """Write the policy of MODEL, with its critic, into FILE.

    FILE ends with .npz or .json. The command prints what was written. MODEL is a file, a folder of 'flyball train' (its
    best), a hash, or 'current' with --config. app/portable.py describes the formats, and plays such files with nothing
    but NumPy. 'flyball eval --model FILE' evaluates them.

    If MODEL is an adapter of a language model, FILE is a folder. The adapter and a small base model become folders in
    it, which PEFT, transformers and vLLM load.
    """
    from app.api.models import fetch_model
    from app.core import HEURISTIC, RANDOM, is_judge
    from app.language.generator import LORA
    from app.store import MemoryStore, export_checkpoint, get_checkpoint

    if model in (RANDOM, HEURISTIC) or is_judge(model):
        raise click.UsageError(f"MODEL: {model} is a bot and has no parameters; name a model.")
    store = MemoryStore()
    checkpoint = get_checkpoint(store, fetch_model(model, "MODEL", location, config_key, store, say=note))
    if checkpoint.manifest.content == LORA:
        from app.api.text_players import export_text_model  # loads torch and transformers

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
