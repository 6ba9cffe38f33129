"""Training runs: begin, resume, record iterations, and report."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.api.arguments import Seed, check_arguments
from app.api.runs import Say, config_of, locate_run, silent
from app.config import GameConfig, PipelineSettings
from app.config.pipeline_loading import by_key, changed, training_settings
from app.core import BadUsage, ConfigKey, ModelHash, reading
from app.learning.inference import Policy
from app.learning.network import threads
from app.play.players import policy_of
from app.store import FileStore
from app.telemetry import NoPlots, check_wandb
from app.train.game import RunGame, final_evaluations, run_game
from app.train.iteration import Evaluation, Iteration, Sink
from app.train.learning import check_start
from app.train.report import REPORT, draw_curves, summary_text, write_report
from app.train.run import TrainingRun
from app.train.sinks import CsvLog, TensorBoardSink, WandbSink, read_log
from app.train.state import RunHead, RunPlace, RunState
from daemons.clock import SystemClock, boot_id

BEGINNING = ("backend", "collection.initial_policy", "cloning.", "env.game", "network.")
"""Prefixes of the keys of settings that determine a run's first policy."""

SET_BY_GAME = ("network.obs_dim", "network.action_dim")
"""Keys below ``BEGINNING`` that are not compared: only the game's own number is accepted for them."""

SHOWN = {
    "policy_loss": "policy {:+.4f}",
    "value_loss": "value {:.4f}",
    "divergence": "divergence {:.4f}",
    "entropy": "entropy {:.3f}",
    "approx_kl": "KL {:.4f}",
    "clip_fraction": "clipped {:.2f}",
}
"""Metrics in the line of an iteration."""

BOARD = "tensorboard"
QUIET = ("WARNING", "ERROR")


@dataclass(frozen=True, slots=True)
class PreparedTraining:
    """A run whose settings are checked, before anything is written."""

    place: RunPlace
    head: RunHead
    game: RunGame
    resume: bool

    def report_so_far(self, state: RunState) -> None:
        """Write the report of a run that has not ended."""
        summary = summary_text(self.head, state, None, self.game.config.players, [])
        write_report(self.place.path, self.head, summary, curves=False)


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A finished training run."""

    output: Path  # its folder: models, log, curves, report
    config: ConfigKey
    seed: int
    state: RunState  # after the last iteration
    final: tuple[Evaluation, ...]  # of the best policy against every bot, on fresh deals
    summary: str  # the report's, in Markdown

    @property
    def model(self) -> ModelHash:
        """The best policy's hash."""
        return self.state.best.model

    @property
    def policy(self) -> Path:
        """The best policy's checkpoint."""
        return FileStore(RunPlace(self.output).models).path(self.model)

    @property
    def scores(self) -> dict[str, float]:
        """The best policy's mean outcome against each bot.

        Outcomes are in [-1, 1], and equal players get 0. The games are played on fresh deals.
        """
        return {found.opponent: found.outcome for found in self.final}

    def json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        final = [asdict(found) for found in self.final]
        state = self.state.model_dump(mode="json", exclude={"replayed", "rows"})
        return {"config": self.config, "seed": self.seed, **state, "final": final}


def prepare_training(
    config: GameConfig,
    file: Path | None,
    values: Mapping[str, Any],
    seed: int | None,
    output: Path,
    *,
    resume: bool,
    settings_folder: str,
) -> PreparedTraining:
    """Check the settings of a new or resumed run in ``output``.

    ``file`` and ``values`` change the settings: see ``training_settings``. A resumed run takes ``values`` alone.
    ``settings_folder`` is that of ``flyball.toml``.
    """
    place = RunPlace(output)
    if not resume:
        head = RunHead(config=config.key, seed=seed or 0, settings=training_settings(config, file, values))
    elif file is None and seed is None:
        head = _resumed(place, config, values)
    else:
        raise BadUsage(
            "A resumed run keeps its seed, and its settings but for single ones that are given.",
            hint="Leave out the seed and the settings file.",
        )
    check_wandb(head.settings.logging.wandb, "logging.wandb")
    if log := _log_of(place, head):
        with reading(log):
            read_log(log)
    game = run_game(config, head.settings, settings_folder)
    check_start(head.settings, begun=place.state() is not None)
    return PreparedTraining(place, head, game, resume)


def _resumed(place: RunPlace, config: GameConfig, values: Mapping[str, Any]) -> RunHead:
    """Return a run's head with changed settings.

    Settings that determined an existing first policy must stay. Raises ``BadUsage``.
    """
    head = place.head()
    if head.config != config.key:
        raise BadUsage(f"The run in {place.path} is one of {head.config}.")
    settings: PipelineSettings = changed(head.settings, values)
    after = by_key(settings)
    for key, value in by_key(head.settings).items() if place.state() is not None else ():
        if key.startswith(BEGINNING) and key not in SET_BY_GAME and after[key] != value:
            raise BadUsage(f"{key} is {value!r}, and the run has begun with it: for {after[key]!r} begin another one.")
    return head.replace(settings=settings)


def train_prepared(run: PreparedTraining, progress: "ProgressLines", say: Say) -> TrainingResult:
    """Train until the run ends, and report on it.

    ``say`` receives lines that no log level hides.
    """
    place, head, game = run.place, run.head, run.game
    with place.held(), threads(head.settings.training.threads), ExitStack() as stack:
        if run.resume:
            place.change(head)
        else:
            place.begin(head)
        say(f"Run folder {place.path.absolute()}; if interrupted, it can be resumed.")
        opened = [stack.enter_context(closing(sink)) for sink in _sinks(place, head)]
        sinks = (progress, *opened)
        state = TrainingRun(place, game, head.settings, head.seed, sinks, progress.say, run.report_so_far).run()
        best = policy_of(place.model(state.best.model), head.settings.games)
        finals = final_evaluations(game, best, head.settings.training, head.seed)
        summary = _report(run, state, finals, say)
    return TrainingResult(place.path, head.config, head.seed, state, tuple(finals), summary)


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


def _report(run: PreparedTraining, state: RunState, finals: Sequence[Evaluation], say: Say) -> str:
    """Write the final report and the curves; return the report's summary."""
    place, head = run.place, run.head
    log, curves = _log_of(place, head), False
    summary = summary_text(head, state, finals, run.game.config.players, read_log(log) if log else [])
    try:
        curves = log is not None and draw_curves(place.path, log)
    except NoPlots as error:
        say(f"No curves were drawn: {error} {error.hint}")
    write_report(place.path, head, summary, curves=curves)
    say(f"The report: {place.path / REPORT}")
    return summary


class ProgressLines(Sink):
    """Sink that says a line about an iteration, as often as configured."""

    def __init__(self, settings: PipelineSettings, say: Say) -> None:
        self._iterations, self._logging, self._say = settings.collection.num_iterations, settings.logging, say

    def say(self, text: str) -> None:
        """Say a line, unless only warnings are asked for."""
        if self._logging.log_level not in QUIET:
            self._say(text)

    def write(self, iteration: Iteration, policy: Policy) -> None:  # noqa: ARG002 - a sink
        """See ``Sink.write``."""
        if iteration.number % self._logging.print_frequency == 0 or iteration.number == self._iterations:
            self.say(_line(iteration, self._iterations))


def _line(iteration: Iteration, iterations: int) -> str:
    parts = [
        f"{iteration.number}/{iterations}",
        f"return {iteration.mean_return:+.3f}",
        *(shown.format(iteration.metrics[name]) for name, shown in SHOWN.items() if name in iteration.metrics),
        f"{iteration.rows:,} rows in {iteration.seconds.total:.1f} s",
    ]
    if iteration.recovered:
        parts.append("discarded")
    if iteration.evaluation:
        parts.append(f"{iteration.evaluation}{' (best)' if iteration.best else ''}")
    return "  ".join(parts)


def train(
    game: str | GameConfig,
    settings: Mapping[str, Any] | None = None,
    *,
    output: str | Path | None = None,
    seed: int | None = None,
    resume: bool = False,
    settings_file: str | Path | None = None,
    run: str | Path = "run",
    config_file: str | Path | None = None,
    progress: Say = silent,
) -> TrainingResult:
    """Train a policy in this process, as `flyball train` does.

    Returns the best checkpoint and its scores.

    Args:
        game: key of a configuration, or a configuration itself.
        settings: by dotted key, or tables; `flyball train GAME --settings` lists them.
        output: folder of the run; by default ``training/GAME``.
        seed: of all random draws; 0 by default.
        resume: continue the run in the folder; ``settings`` hold for its remaining part.
        settings_file: TOML or YAML with settings, which ``settings`` override.
        run: a folder whose ``flyball.toml`` may define the configuration.
        config_file: read instead of that ``flyball.toml``.
        progress: receives lines of text, for instance ``print``.

    Raises ``BadUsage``, ``BadSettings``, ``UnknownConfig``, ``RunExists``, ``RunInUse``, ``NoRun`` or another
    ``FlyballError``.

    >>> brief = {"collection": {"num_iterations": 1, "games_per_iteration": 16}, "training.final_games": 8}
    >>> result = flyball.train("tic_tac_toe_2p", brief, output="trained")
    >>> result.state.iteration, list(result.scores)
    (1, ['random'])
    >>> result.policy.is_file()
    True
    """
    check_arguments(Seed | None, seed=seed)
    place = locate_run(run, config_file)
    config = config_of(game, place)
    folder = Path("training") / config.key if output is None else Path(output)
    file = None if settings_file is None else Path(settings_file)
    prepared = prepare_training(
        config, file, settings or {}, seed, folder, resume=resume, settings_folder=place.settings_folder
    )
    with closing(ProgressLines(prepared.head.settings, progress)) as lines:
        return train_prepared(prepared, lines, progress)
