"""``flyball train``: a whole training run in one command and one process."""

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.text import Text

from flyball.app.api.runs import RunLocation
from flyball.app.cli.options import FILE, FOLDER, SEED, json_option, run_options, set_option
from flyball.app.cli.output import data_only_on_stdout, echo, show_table, write_json
from flyball.app.config import LANGUAGE_BACKEND, GameConfig, flatten
from flyball.app.config.pipeline_loading import MEANINGS, assigned, by_key, training_settings
from flyball.app.core import BadUsage, FlyballError
from flyball.app.language.training_settings import text_settings

STARTS = {"bc": "behavioral_clone", "random": "random"}


class Interrupted(FlyballError, code="interrupted"):
    """Ctrl-C ended the training."""


class Terminated(Interrupted, code="terminated"):
    """SIGTERM ended the training."""


class Stop(KeyboardInterrupt):
    """A signal that ends the training.

    It is no plain KeyboardInterrupt: when one is raised within ``exec``, as in an import of a dataclass, CPython kills
    itself at its exit although the error was handled.
    """


@contextmanager
def stoppable(folder: Path, resumed: str) -> Iterator[None]:
    """Raise ``Interrupted`` at Ctrl-C and ``Terminated`` at SIGTERM.

    The error says where the run in ``folder`` goes on. The error for a folder with a run names the command ``resumed``.
    """

    def stop(number: int, _: FrameType | None) -> None:
        raise Stop(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except Stop as stopped:
        kind = Terminated if stopped.args[0] == signal.SIGTERM else Interrupted
        state = folder / "state.json"
        if not state.exists():
            hint = "It goes on by --resume." if (folder / "run.json").exists() else "Begin the run again."
            raise kind("Interrupted before the first checkpoint.", hint=hint) from None
        done = json.loads(state.read_bytes())["iteration"]
        what = f"Interrupted; the run is at the checkpoint after iteration {done}."
        raise kind(what, hint="It goes on by --resume.") from None
    except FlyballError as error:
        if error.code == "run_exists":
            raise BadUsage(error.message, hint=f"Choose another folder, or resume it: {resumed}") from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command()
@click.argument("config_key", metavar="GAME")
@click.option("--config", "file", type=FILE, help="Settings: TOML, or YAML.")
@set_option
@click.option("--start", type=click.Choice(list(STARTS)), help="From a clone of a bot, or at random.")
@click.option("--output", type=FOLDER, help="Folder of the training.  [default: training/GAME]")
@click.option("--seed", type=SEED, help="Of all that is drawn.  [default: 0]")
@click.option("--resume", is_flag=True, help="Go on with the run in the folder; it becomes what it would have become.")
@click.option("--settings", "only_settings", is_flag=True, help="Show every setting and what it means; train nothing.")
@json_option
@run_options
def train(
    location: RunLocation,
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
    """Train a policy of GAME.

    The training collects games, learns from them, evaluates and saves, again and again. The policy learns by PPO, or
    from what its own tree searches find: see --set backend. Settings are those that suit the game, unless a file or
    --set says otherwise; see --settings. The same settings and seed give the same weights, interrupted or not. In the
    folder: the models, the log, the curves and the report.
    """
    config, folder = location.config(config_key), output or Path("training") / config_key
    resumed = location.command("train", config_key, "--output", str(folder), "--resume")
    values = assigned(assignments) | ({"collection.initial_policy": STARTS[start]} if start else {})
    if config.backend == LANGUAGE_BACKEND and (file or start):
        raise BadUsage("--config and --start are for networks; a text game has --set, and its table in flyball.toml.")
    if only_settings:
        _show_settings(config, file, values, as_json=as_json)
        return
    with stoppable(folder, resumed), data_only_on_stdout():
        from flyball.app.api.training import prepare_training  # loads torch
        from flyball.app.cli.training import train_and_show

        result = train_and_show(prepare_training(location, config, folder, values, file=file, seed=seed, resume=resume))
    if as_json:
        write_json(result.json())
    else:
        echo(result.summary, nl=False)


def _show_settings(config: GameConfig, file: Path | None, values: Mapping[str, Any], *, as_json: bool) -> None:
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    if config.backend == LANGUAGE_BACKEND:
        changed, loop = text_settings(config, values)
        shown = loop.model_dump(mode="json") | flatten({"language": changed.language.model_dump(mode="json")})
        columns, rows = ("setting", "value"), [(key, json.dumps(value)) for key, value in shown.items()]
    else:
        shown = by_key(training_settings(config, file, values))
        texts = ("unset" if value is None else json.dumps(value, ensure_ascii=False) for value in shown.values())
        columns = ("setting", "value", "meaning")
        rows = [(key, text, MEANINGS[key]) for key, text in zip(shown, texts, strict=True)]
    if as_json:
        write_json(shown)
    else:
        show_table(columns, [list(map(Text, row)) for row in rows], left=columns)  # otherwise brackets are markup
