"""Training runs of networks: state, evaluations, checkpoints, report."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from flyball.app.config import PipelineSettings
from flyball.app.controllers.needs import ReplayBuffer
from flyball.app.core import Clock, ConfigKey, FlyballError, ModelHash, Record, Tabular, derive_seed, named
from flyball.app.events import ShardRef
from flyball.app.learning.inference import Policy
from flyball.app.learning.learner import Improvement
from flyball.app.learning.ppo import TrainingDiverged
from flyball.app.learning.training import DiscardedUpdate
from flyball.app.play.players import Player, policy_of
from flyball.app.store import Checkpoint, FileStore, Shard
from flyball.app.telemetry import NoPlots
from flyball.app.train.game import WORKER, RunGame, collect, evaluate, final_evaluations
from flyball.app.train.iteration import Distributions, Evaluation, Floats, Games, Iteration, Learned, Sink, outcome_text
from flyball.app.train.learning import first_policy, successor
from flyball.app.train.report import REPORT, draw_curves, summary_text, write_report
from flyball.app.train.run import Method
from flyball.app.train.sinks import CsvLog, TensorBoardSink, WandbSink, read_log
from flyball.app.train.state import Best, RunHead, RunState, TrainingFolder

SAMPLED = 1024  # most rows in a histogram's sample
_Z_95_ONE_SIDED = 1.645

SHOWN = {
    "policy_loss": "policy {:+.4f}",
    "value_loss": "value {:.4f}",
    "divergence": "divergence {:.4f}",
    "entropy": "entropy {:.3f}",
    "approx_kl": "KL {:.4f}",
    "clip_fraction": "clipped {:.2f}",
}
"""Metrics in the line of an iteration."""


class TooManyDivergences(FlyballError):
    """More updates of a run diverged than its settings allow."""


@dataclass(frozen=True, slots=True, repr=False)
class TrainingResult(Tabular):
    """A finished training run. ``to_frame()`` has a row for each bot that the best policy met at the end."""

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
        return FileStore(TrainingFolder(self.output).models).path(self.model)

    @property
    def scores(self) -> dict[str, float]:
        """The best policy's mean outcome against each bot, in [-1, 1]; equal players get 0. The deals are fresh."""
        return {evaluation.opponent: evaluation.outcome for evaluation in self.final}

    def headline(self) -> str:
        """See ``Tabular``."""
        scores = [f"{evaluation.opponent} {evaluation.outcome:+.3f}" for evaluation in self.final]
        made = f"training of {self.config} in {self.output} after iteration {self.state.iteration}"
        return f"{made}: outcome in [-1, 1] against {named(scores)}" if scores else made

    def tables(self) -> dict[str, Sequence[Record]]:
        """See ``Tabular``."""
        return {"final": [asdict(evaluation) for evaluation in self.final]}

    def json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        final = [asdict(evaluation) for evaluation in self.final]
        state = self.state.model_dump(mode="json", exclude={"replayed", "rows"})
        return {"config": self.config, "seed": self.seed, **state, "final": final}


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """An update whose samples are ready."""

    train: Callable[..., Improvement[Any]]  # its argument ``report`` receives each epoch's number and metrics
    metrics: Mapping[str, float]  # known before training: the scheduled settings, and figures of the samples
    advantages: Floats  # [R] of the fresh rows, before normalisation; empty where none are estimated


@dataclass(eq=False)
class NetworkMethod(Method[RunState, Shard, Evaluation]):
    """The training of a network; subclasses say who plays the games, and how the network learns from them."""

    folder: TrainingFolder
    head: RunHead
    game: RunGame
    resumed: bool = False
    say: Callable[[str], None] = lambda _text: None
    settings: PipelineSettings = field(init=False)
    _policy: tuple[ModelHash, Policy] | None = field(default=None, init=False)  # the one that was used last

    def __post_init__(self) -> None:
        self.settings = self.head.settings
        training = self.settings.training
        self.iterations, self.threads = self.settings.collection.num_iterations, training.threads
        self.evaluate_every, self.save_every = training.eval_frequency, training.checkpoint_frequency

    @abstractmethod
    def player(self, policy: Policy) -> Player:
        """Return the player that collects the games of a policy."""

    @abstractmethod
    def prepare(self, state: RunState, base: Checkpoint, fresh: Shard, seed: int) -> Update:
        """Make the samples of an update of ``base`` from the iteration's rows."""

    def progress(self, state: RunState) -> float:
        """Return the progress of the run at its next iteration: 0 at the first, 1 at the last."""
        return state.iteration / max(1, self.iterations - 1)

    def open(self) -> None:
        """See ``Method.open``."""
        if self.resumed:
            self.folder.change(self.head)
        else:
            self.folder.begin(self.head)
        self.say(f"Run folder {self.folder.path.absolute()}; if interrupted, it can be resumed.")
        if (state := self.saved()) is not None:
            self._say(f"Going on after iteration {state.iteration}.")

    def sinks(self, clock: Clock, fresh_id: str) -> Iterator[Sink[Evaluation]]:
        """See ``Method.sinks``."""
        logging, run = self.settings.logging, self.head.model_dump(mode="json")
        if logging.tensorboard:
            yield TensorBoardSink(self.folder.path / "tensorboard", run, clock)
        if self.log:
            yield CsvLog(self.log, clock)
        if logging.wandb != "off":
            yield WandbSink(self.folder.path, f"{self.head.config}-{self.head.seed}", fresh_id, run, logging.wandb)

    @property
    def log(self) -> Path | None:
        """The path of the run's log, if there is one."""
        name = self.settings.logging.csv_log
        return self.folder.path / name if name else None

    def saved(self) -> RunState | None:
        """See ``Method.saved``."""
        return self.folder.state()

    def first(self) -> Checkpoint:
        """See ``Method.first``."""
        policy = first_policy(self.game, self.settings, self.head.seed, self._say)
        self.folder.keep(policy)  # before sinks, because a sink's file could take the name of the models' folder
        return policy

    def begin(self, policy: Checkpoint, evaluation: Evaluation) -> RunState:
        """See ``Method.begin``."""
        self._say(f"The first policy: {evaluation.text(self.game.spec.outcome_scale)}.")
        return RunState(iteration=0, model=policy.model, best=Best.of(0, policy.model, evaluation))

    def ended(self, state: RunState) -> str | None:
        """See ``Method.ended``."""
        training = self.settings.training
        if state.recoveries > training.max_recoveries:
            raise TooManyDivergences(
                f"{state.recoveries} updates diverged in {state.iteration} iterations.",
                hint="Begin a new run with a lower learning rate, or more games in an iteration.",
            )
        if state.iteration >= self.iterations:
            return "those were all"
        if training.max_episodes is not None and state.games >= training.max_episodes:
            return f"{state.games} games were played"
        if training.early_stopping and len(state.recent) >= training.patience:
            most = most_rise(state.recent[-training.patience :])
            if most < training.least_rise:
                rise = f"the outcome rose by at most {most:.3f} on the scale from -1 to 1 (95% certain)"
                return f"over {training.patience} evaluations {rise}"
        return None

    def collect(self, state: RunState, policy: Checkpoint) -> Games[Shard]:
        """See ``Method.collect``."""
        player, seed = self.player(self._loaded(policy)), self._seed(state, "games")
        return collect(self.game, policy.model, player, self.settings, seed)

    def update(self, state: RunState, policy: Checkpoint, games: Games[Shard], lap: Callable[[str], None]) -> Learned:
        """See ``Method.update``. An update that diverges is discarded."""
        update = self.prepare(state, policy, games.shard, self._seed(state, "update"))
        lap("advantages")
        figures = {**update.metrics, "epochs": 0.0}

        def count(number: int, _metrics: object) -> None:
            figures["epochs"] = float(number)

        sample = partial(self._distributions, shard=games.shard, advantages=update.advantages)
        try:
            result = update.train(report=count)
        except (TrainingDiverged, DiscardedUpdate) as error:
            metrics = asdict(error.metrics) if isinstance(error, TrainingDiverged) else {}
            return Learned(policy, metrics | figures, error.message, partial(sample, policy, {}))
        made = successor(policy, result.parameters, result.optimizer)
        return Learned(made, asdict(result.metrics) | figures, None, partial(sample, made, result.gradients))

    def _distributions(
        self, checkpoint: Checkpoint, gradients: Mapping[str, float], *, shard: Shard, advantages: Floats
    ) -> Distributions:
        """Return the data of histograms, from a sample of rows spread evenly over the iteration's rows."""
        policy = self._loaded(checkpoint)
        rows = np.linspace(0, shard.rows - 1, min(SAMPLED, shard.rows)).astype(np.int64)
        outputs = policy.outputs(shard.obs[rows])
        return Distributions(
            policy=policy,
            logits=outputs[:, : policy.actions][np.asarray(shard.mask[rows])],
            values=outputs[:, policy.actions],
            advantages=advantages[rows] if len(advantages) else advantages,
            gradients=gradients,
        )

    def evaluate(self, policy: Checkpoint, number: int) -> Evaluation:
        """See ``Method.evaluate``. All evaluations have one seed, so the deals are the same each time."""
        training, seed = self.settings.training, derive_seed(self.head.seed, "evaluation")
        games, temperature = training.eval_games, training.eval_temperature
        player = self._loaded(policy)
        return evaluate(self.game, player, training.eval_opponent, games=games, temperature=temperature, seed=seed)

    def advance(
        self, state: RunState, games: Games[Shard], learned: Learned, evaluation: Evaluation | None
    ) -> tuple[RunState, bool]:
        """See ``Method.advance``."""
        number, model = state.iteration + 1, learned.policy.model
        best, recent = state.best, state.recent
        replay = self._replayed(state, games.shard)
        if learned.complaint is not None:
            self._say(f"{learned.complaint} The update was discarded; the next ones learn more slowly.")
        if evaluation is not None:
            recent = (*recent, (evaluation.outcome, evaluation.stderr))[-self.settings.training.patience :]
        # Of equals the later one counts as better: against a weak opponent, all evaluations end at 100% while the
        # policy still learns.
        if evaluation is not None and evaluation.outcome >= best.outcome and model != best.model:
            best = Best.of(number, model, evaluation)
        if best != state.best or number % self.save_every == 0:
            self.folder.keep(learned.policy)
        after = RunState(
            iteration=number,
            model=model,
            games=state.games + games.games,
            best=best,
            recent=recent,
            recoveries=state.recoveries + (learned.complaint is not None),
            replayed=replay.shards,
            rows=replay.rows,
        )
        return after, best != state.best

    def _replayed(self, state: RunState, shard: Shard) -> ReplayBuffer:
        """Return the rows that the next iteration replays; if the run replays any, the iteration's shard is stored."""
        if not self.game.config.replay_rows:
            return ReplayBuffer(rows=state.rows)
        key, meta = self.folder.keep_shard(shard), shard.meta
        stored = ShardRef(key=key, worker=WORKER, rows=shard.rows, games=shard.games, model=state.model, seed=meta.seed)
        return ReplayBuffer(state.replayed, state.rows).plus((stored,), self.game.config)

    def show(self, iteration: Iteration[Evaluation]) -> None:
        """See ``Method.show``. It says a line as often as configured."""
        if iteration.number % self.settings.logging.print_frequency and iteration.number != self.iterations:
            return
        metrics, scale = iteration.metrics, self.game.spec.outcome_scale
        parts = [
            f"{iteration.number}/{self.iterations}",
            f"return {outcome_text(iteration.mean_return or 0.0, scale)}",
            *(shown.format(metrics[name]) for name, shown in SHOWN.items() if name in metrics),
            f"{iteration.rows:,} rows in {iteration.seconds['total']:.1f} s",
        ]
        if iteration.recovered:
            parts.append("discarded")
        if iteration.evaluation:
            parts.append(f"{iteration.evaluation.text(scale)}{' (best)' if iteration.best else ''}")
        self._say("  ".join(parts))

    def save(self, state: RunState, policy: Checkpoint) -> None:
        """See ``Method.save``."""
        self.folder.save(state, policy)
        summary = summary_text(self.head, state, None, self.game.spec, [])
        write_report(self.folder.path, self.head, summary, curves=False)

    def end(self, state: RunState, policy: Checkpoint, reason: str) -> None:
        """See ``Method.end``."""
        self.save(state, policy)
        self._say(f"Ended after {state.iteration} iterations: {reason}.")

    def finish(self, state: RunState) -> TrainingResult:
        """See ``Method.finish``. The best policy is evaluated again, on fresh deals."""
        head, path, curves = self.head, self.folder.path, False
        best = policy_of(self.folder.model(state.best.model), self.settings.games)
        finals = final_evaluations(self.game, best, self.settings.training, head.seed)
        rows = read_log(self.log) if self.log else []
        summary = summary_text(head, state, finals, self.game.spec, rows)
        try:
            curves = draw_curves(path, rows, self.game.spec.outcome_scale)
        except NoPlots as error:
            self.say(f"No curves were drawn: {error} {error.hint}")
        write_report(path, head, summary, curves=curves)
        self.say(f"The report: {path / REPORT}")
        return TrainingResult(path, head.config, head.seed, state, tuple(finals), summary)

    def _loaded(self, checkpoint: Checkpoint) -> Policy:
        if self._policy is None or self._policy[0] != checkpoint.model:
            self._policy = checkpoint.model, policy_of(checkpoint, self.settings.games)
        return self._policy[1]

    def _say(self, text: str) -> None:
        """Say a line, unless only warnings are asked for."""
        if self.settings.logging.log_level not in ("WARNING", "ERROR"):
            self.say(text)

    def _seed(self, state: RunState, purpose: str) -> int:
        return derive_seed(self.head.seed, "iteration", state.iteration + 1, purpose)


def most_rise(evaluations: Sequence[tuple[float, float]]) -> float:
    """Return the upper 95% bound on the outcome's rise over ``evaluations``.

    An evaluation is an outcome with its standard error; at least two are needed, at even intervals. The rise is that of
    the least-squares line from the first evaluation to the last, because evaluations are noisier than a policy's gain
    between two of them. So neither a slump nor a series without a new best is evidence.
    """
    outcomes, stderrs = np.array(evaluations).T
    times = np.linspace(-0.5, 0.5, len(outcomes))
    weights = times / (times**2).sum()
    return float(weights @ outcomes) + _Z_95_ONE_SIDED * float(np.linalg.norm(weights * stderrs))
