"""``flyball train``: begin or resume a run, show it, and sum it up."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from app.cli.output import note
from app.cli.train import by_key, changed, training_settings
from app.config import GameConfig
from app.core import FlyballError, reading
from app.learning.inference import Policy
from app.telemetry import NoPlots
from app.train.csv_log import CsvLog, read_log
from app.train.curves import TensorBoardSink, WandbSink, loaded_wandb
from app.train.evaluating import described, final_evaluations
from app.train.game import RunGame, run_game
from app.train.iteration import Evaluation, Iteration, Sink
from app.train.learning import check_start
from app.train.report import REPORT, draw_curves, judged, summary_text, write_report
from app.train.run import TrainingRun
from app.train.state import RunHead, RunPlace, RunState
from daemons.clock import SystemClock, boot_id


class TrainingProgress(AbstractContextManager["TrainingProgress"]):
    """A sink that writes to stderr.

    Args:
        iterations: of the whole run.
        every: a line for so many iterations.
        quiet: no lines, but for warnings.
    """

    def __init__(self, iterations: int, every: int, *, quiet: bool) -> None:
        self._every, self._quiet = every, quiet
        self._iterations = iterations
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
            self._task = self._bar.add_task("training", total=iterations)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Write a line."""
        if not self._quiet:
            self._write(text)

    def begin(self, evaluation: Evaluation) -> None:
        """See ``Sink.begin``: the run says it in words."""

    def write(self, iteration: Iteration, policy: Policy) -> None:  # noqa: ARG002 - a sink
        """See ``Sink.write``."""
        if self._bar:
            self._bar.update(self._task, completed=iteration.number)
        if iteration.number % self._every == 0 or iteration.number == self._iterations:
            self.say(line_of(iteration, self._iterations))

    def close(self) -> None:
        """See ``Sink.close``."""

    def _write(self, text: str) -> None:
        if self._bar:
            self._bar.console.print(text, highlight=False)
        else:
            note(text)


def line_of(iteration: Iteration, iterations: int) -> str:
    """Return an iteration in one line."""
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
        parts.append(described(iteration.evaluation) + (" (best)" if iteration.best else ""))
    return "  ".join(parts)


BOARD = "tensorboard"


def check_sinks(place: RunPlace, head: RunHead) -> None:
    """Make sure, before a run begins or goes on, that it can tell what it does where it is asked to.

    Raises ``NoWandb``, ``ForeignLog`` or ``UnusableFile``.
    """
    if head.settings.logging.wandb != "off":
        loaded_wandb()
    if log := log_of(place, head):
        with reading(log):
            read_log(log)


@contextmanager
def open_sinks(place: RunPlace, head: RunHead) -> Iterator[list[Sink]]:
    """Open what the settings ask for, and close it at the end."""
    logging, clock = head.settings.logging, SystemClock()
    told = head.model_dump(mode="json")
    sinks: list[Sink] = []
    if logging.tensorboard:
        sinks.append(TensorBoardSink(place.path / BOARD, told, clock))
    if log := log_of(place, head):
        sinks.append(CsvLog(log, clock))
    if logging.wandb != "off":
        name = f"{head.config}-{head.seed}"
        sinks.append(WandbSink(place.path, name, boot_id(), told, logging.wandb))
    with ExitStack() as stack:
        for sink in sinks:
            stack.enter_context(closing(sink))
        yield sinks


def log_of(place: RunPlace, head: RunHead) -> Path | None:
    """Return where the run's log is; None where it keeps none."""
    name = head.settings.logging.csv_log
    return place.path / name if name else None


def report(place: RunPlace, head: RunHead, state: RunState, finals: Sequence[Evaluation], players: int) -> str:
    """Write the final report and the curves into the run's folder, and return the summary in it."""
    log, curves = log_of(place, head), False
    summary = summary_text(head, state, [judged(found, players) for found in finals], read_log(log) if log else [])
    try:
        curves = log is not None and draw_curves(place.path, log)
    except NoPlots as error:
        note(f"No curves were drawn: {error} {error.hint}")
    write_report(place.path, head, summary, curves=curves)
    note(f"The report: {place.path / REPORT}")
    return summary


BEGINNING = ("collection.initial_policy", "cloning.", "env.game", "network.")
"""Settings, and tables of them, that a run's first policy is made by."""

SAID_BY_GAME = ("network.obs_dim", "network.action_dim")
"""Of these, another number than the game's is refused anyway."""

QUIET = ("WARNING", "ERROR")


class Interrupted(FlyballError):
    """Somebody pressed Ctrl-C."""


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """Options of the command; ``seed`` ``None``: not given."""

    config: GameConfig
    file: Path | None
    assignments: Sequence[str]
    seed: int | None
    output: Path
    resume: bool


def train_game(request: TrainRequest) -> tuple[dict[str, Any], str]:
    """Train, and return the summary, also in words. Raises ``BadSettings``, and what begins or ends a run."""
    place = RunPlace(request.output)
    head = _resumed(place, request) if request.resume else _new(request)
    settings = head.settings
    check_sinks(place, head)
    game = run_game(request.config, settings)
    check_start(settings, begun=place.state() is not None)
    with place.held():
        if request.resume:
            place.change(head)
        else:
            place.begin(head)
        return _train(place, head, game)


def _train(place: RunPlace, head: RunHead, game: RunGame) -> tuple[dict[str, Any], str]:
    settings = head.settings
    note(f"Run folder {place.path.absolute()}; if interrupted, it goes on by --resume.")
    iterations, logging = settings.collection.num_iterations, settings.logging
    progress = TrainingProgress(iterations, logging.print_frequency, quiet=logging.log_level in QUIET)
    with _going_on_later(place), open_sinks(place, head) as sinks, progress:
        state = TrainingRun(place, game, settings, head.seed, (progress, *sinks), progress.say).run()
        best = place.model(state.best.model)
        finals = final_evaluations(game, game.policy(best, settings.training.device), settings.training, head.seed)
    words = report(place, head, state, finals, game.config.players)
    summary = {
        "config": head.config,
        "seed": head.seed,
        **state.model_dump(mode="json"),
        "final": [asdict(found) for found in finals],
    }
    return summary, words


@contextmanager
def _going_on_later(place: RunPlace) -> Iterator[None]:
    """On Ctrl-C say where the run goes on."""
    try:
        yield
    except KeyboardInterrupt:
        state = place.state()
        done = "before its first iteration" if state is None else f"at the checkpoint after iteration {state.iteration}"
        raise Interrupted(f"Interrupted; the run is {done}.", hint="It goes on by --resume.") from None


def _new(request: TrainRequest) -> RunHead:
    settings = training_settings(request.config, request.file, request.assignments)
    return RunHead(config=request.config.key, seed=request.seed or 0, settings=settings)


def _resumed(place: RunPlace, request: TrainRequest) -> RunHead:
    if request.file is not None or request.seed is not None:
        raise click.UsageError("A run that goes on keeps its settings and seed; --set changes what is left of it.")
    head = place.head()
    if head.config != request.config.key:
        raise click.UsageError(f"The run in {place.path} is one of {head.config}.")
    settings = changed(head.settings, request.assignments)
    if place.state() is not None:
        _check_kept(by_key(head.settings), by_key(settings))
    return head.replace(settings=settings)


def _check_kept(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Refuse to change what the first policy was made by: a run that has one goes on with it."""
    for key, value in before.items():
        if key.startswith(BEGINNING) and key not in SAID_BY_GAME and after[key] != value:
            raise click.UsageError(
                f"{key} is {value!r}, and the run has begun with it: for {after[key]!r} begin another one."
            )
