"""``flyball train``: begin or resume a run, show its progress, and report on it."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from app.cli.output import note
from app.cli.train import by_key, changed, training_settings
from app.config import GameConfig, PipelineSettings
from app.core import FlyballError, reading
from app.learning.inference import Policy
from app.telemetry import NoPlots
from app.train.game import RunGame, final_evaluations, run_game
from app.train.iteration import Evaluation, Iteration, Sink
from app.train.learning import check_start
from app.train.report import REPORT, draw_curves, summary_text, write_report
from app.train.run import TrainingRun
from app.train.sinks import CsvLog, TensorBoardSink, WandbSink, loaded_wandb, read_log
from app.train.state import RunHead, RunPlace, RunState
from daemons.clock import SystemClock, boot_id

BEGINNING = ("collection.initial_policy", "cloning.", "env.game", "network.")
"""Prefixes of the keys of settings that determine a run's first policy."""

SET_BY_GAME = ("network.obs_dim", "network.action_dim")
"""Keys below ``BEGINNING`` that are not checked here, because only the game's own number is accepted."""

BOARD = "tensorboard"
QUIET = ("WARNING", "ERROR")


class Interrupted(FlyballError):
    """Ctrl-C ended the training."""


def train_game(
    config: GameConfig,
    file: Path | None,
    assignments: Sequence[str],
    seed: int | None,
    output: Path,
    *,
    resume: bool,
    settings_folder: str,
) -> tuple[dict[str, Any], str]:
    """Begin or resume a run; return its summary as values and as text."""
    place = RunPlace(output)
    if not resume:
        head = RunHead(config=config.key, seed=seed or 0, settings=training_settings(config, file, assignments))
    elif file is None and seed is None:
        head = _resumed(place, config, assignments)
    else:
        raise click.UsageError("A run that goes on keeps its settings and seed; --set changes what is left of it.")
    if head.settings.logging.wandb != "off":
        loaded_wandb()
    if log := _log_of(place, head):
        with reading(log):
            read_log(log)
    game = run_game(config, head.settings, settings_folder)
    check_start(head.settings, begun=place.state() is not None)
    with place.held():
        if resume:
            place.change(head)
        else:
            place.begin(head)
        return _train(place, head, game)


def _resumed(place: RunPlace, config: GameConfig, assignments: Sequence[str]) -> RunHead:
    """Return a run's head with changed settings. Those that made an existing policy must stay."""
    head = place.head()
    if head.config != config.key:
        raise click.UsageError(f"The run in {place.path} is one of {head.config}.")
    settings: PipelineSettings = changed(head.settings, assignments)
    after = by_key(settings)
    for key, value in by_key(head.settings).items() if place.state() is not None else ():
        if key.startswith(BEGINNING) and key not in SET_BY_GAME and after[key] != value:
            raise click.UsageError(
                f"{key} is {value!r}, and the run has begun with it: for {after[key]!r} begin another one."
            )
    return head.replace(settings=settings)


def _train(place: RunPlace, head: RunHead, game: RunGame) -> tuple[dict[str, Any], str]:
    settings = head.settings
    note(f"Run folder {place.path.absolute()}; if interrupted, it goes on by --resume.")
    try:
        with ExitStack() as stack:
            progress = stack.enter_context(closing(TrainingProgress(settings)))
            sinks = [stack.enter_context(closing(sink)) for sink in _sinks(place, head)]
            state = TrainingRun(place, game, settings, head.seed, (progress, *sinks), progress.say).run()
            best = place.model(state.best.model)
            finals = final_evaluations(game, game.policy(best, settings.games), settings.training, head.seed)
    except KeyboardInterrupt:
        done = place.state()
        where = "before its first iteration" if done is None else f"at the checkpoint after iteration {done.iteration}"
        raise Interrupted(f"Interrupted; the run is {where}.", hint="It goes on by --resume.") from None
    summary = {
        "config": head.config,
        "seed": head.seed,
        **state.model_dump(mode="json"),
        "final": [asdict(found) for found in finals],
    }
    return summary, _report(place, head, state, finals, game.config.players)


def _sinks(place: RunPlace, head: RunHead) -> Iterator[Sink]:
    """Open the curves and tables that the settings ask for."""
    logging, clock = head.settings.logging, SystemClock()
    run = head.model_dump(mode="json")
    if logging.tensorboard:
        yield TensorBoardSink(place.path / BOARD, run, clock)
    if log := _log_of(place, head):
        yield CsvLog(log, clock)
    if logging.wandb != "off":
        yield WandbSink(place.path, f"{head.config}-{head.seed}", boot_id(), run, logging.wandb)


def _log_of(place: RunPlace, head: RunHead) -> Path | None:
    """Return the path of the run's log; None without a log."""
    name = head.settings.logging.csv_log
    return place.path / name if name else None


def _report(place: RunPlace, head: RunHead, state: RunState, finals: Sequence[Evaluation], players: int) -> str:
    """Write the final report and the curves into the run's folder, and return the report's summary."""
    log, curves = _log_of(place, head), False
    summary = summary_text(head, state, finals, players, read_log(log) if log else [])
    try:
        curves = log is not None and draw_curves(place.path, log)
    except NoPlots as error:
        note(f"No curves were drawn: {error} {error.hint}")
    write_report(place.path, head, summary, curves=curves)
    note(f"The report: {place.path / REPORT}")
    return summary


class TrainingProgress(Sink):
    """A sink that writes lines to stderr, with a progress bar below them on a terminal."""

    def __init__(self, settings: PipelineSettings) -> None:
        self._iterations, self._logging = settings.collection.num_iterations, settings.logging
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console, hidden = Console(stderr=True), not sys.stderr.isatty()
        self._bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=hidden)
        self._task = self._bar.add_task("training", total=self._iterations)
        self._bar.start()

    def say(self, text: str) -> None:
        """Write a line, unless only warnings are asked for."""
        if self._logging.log_level in QUIET:
            return
        if self._bar.disable:
            note(text)
        else:
            self._bar.console.print(text, highlight=False)

    def write(self, iteration: Iteration, policy: Policy) -> None:  # noqa: ARG002 - a sink
        """See ``Sink.write``."""
        self._bar.update(self._task, completed=iteration.number)
        if iteration.number % self._logging.print_frequency == 0 or iteration.number == self._iterations:
            self.say(_line(iteration, self._iterations))

    def close(self) -> None:
        """See ``Sink.close``."""
        self._bar.stop()


def _line(iteration: Iteration, iterations: int) -> str:
    parts = [
        f"{iteration.number}/{iterations}",
        f"return {iteration.mean_return:+.3f}",
        f"policy {iteration.policy_loss:+.4f} value {iteration.value_loss:.4f}",
        f"entropy {iteration.entropy:.3f} KL {iteration.approx_kl:.4f} clipped {iteration.clip_fraction:.2f}",
        f"{iteration.rows:,} rows in {iteration.seconds.total:.1f} s",
    ]
    if iteration.recovered:
        parts.append("thrown away")
    if iteration.evaluation:
        parts.append(f"{iteration.evaluation}{' (best)' if iteration.best else ''}")
    return "  ".join(parts)
