"""The training loop: collect, learn, evaluate, checkpoint.

An iteration depends only on the state and the model that it begins with, the settings and the seed. So an interrupted
run repeats the iterations after its last checkpoint exactly, and then continues.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter, process_time

import numpy as np

from app.config import PipelineSettings
from app.controllers.needs import ReplayBuffer
from app.core import FlyballError, derive_seed
from app.events import ShardRef
from app.learning.inference import Policy
from app.play.players import policy_of
from app.store import Checkpoint, Shard
from app.train.game import WORKER, RunGame, collect, evaluate
from app.train.iteration import PHASES, Distributions, Evaluation, Floats, Iteration, Seconds, Sink
from app.train.learning import first_policy
from app.train.methods import METHODS, Learned, Method, Task, learn
from app.train.state import Best, RunPlace, RunState

SAMPLED = 1024  # most rows in a histogram's sample
_Z_95_ONE_SIDED = 1.645


class TooManyDivergences(FlyballError):
    """More updates of a run diverged than its settings allow."""


def _distributions(policy: Policy, shard: Shard, advantages: Floats, learned: Learned) -> Distributions:
    """Return the data of histograms.

    They come from a sample of rows, spread evenly over the iteration's rows.
    """
    rows = np.linspace(0, shard.rows - 1, min(SAMPLED, shard.rows)).astype(np.int64)
    outputs = policy.outputs(shard.obs[rows])
    return Distributions(
        logits=outputs[:, : policy.actions][np.asarray(shard.mask[rows])],
        values=outputs[:, policy.actions],
        advantages=advantages[rows] if len(advantages) else advantages,
        gradients=learned.gradients,
    )


def most_rise(evaluations: Sequence[tuple[float, float]]) -> float:
    """Return the upper 95% bound on the outcome's rise over ``evaluations``.

    An evaluation is an outcome with its standard error; at least two are needed, at even intervals. The rise is that of
    the least-squares line from the first evaluation to the last, because evaluations are noisier than a policy's gain
    between two of them. So neither a slump nor a series without a new best is evidence.
    """
    outcomes, stderrs = np.array(evaluations).T
    place = np.linspace(-0.5, 0.5, len(outcomes))
    weights = place / (place**2).sum()
    return float(weights @ outcomes) + _Z_95_ONE_SIDED * float(np.linalg.norm(weights * stderrs))


@dataclass(slots=True, eq=False)
class TrainingRun:
    """A training run in a folder, new or resumed."""

    place: RunPlace  # its folder
    game: RunGame  # what is played
    settings: PipelineSettings  # of the run
    seed: int  # of all random draws
    sinks: Sequence[Sink] = ()  # receive every iteration
    say: Callable[[str], None] = lambda _text: None  # receives progress messages
    on_save: Callable[[RunState], None] = lambda _state: None  # receives the state of each checkpoint
    _method: Method = field(init=False)
    _current: Checkpoint = field(init=False)

    def __post_init__(self) -> None:
        self._method = METHODS[self.settings.backend]

    def run(self) -> RunState:
        """Train until the run ends; return its final state.

        An interrupt discards the iteration that is under way, and saves a checkpoint of those before it.

        Raises ``TooManyDivergences``.
        """
        state = self._begin()
        while (reason := self._ended(state)) is None:
            before = self._current
            try:
                state = self._iterate(state)
            except KeyboardInterrupt:
                saved = self.place.state()
                if saved is None or saved.iteration < state.iteration:  # otherwise its models may be gone
                    self._save(state, before)
                raise
            if state.recoveries > self.settings.training.max_recoveries:
                raise TooManyDivergences(
                    f"{state.recoveries} updates diverged in {state.iteration} iterations.",
                    hint="Begin a new run with a lower learning rate, or more games in an iteration.",
                )
        self._save(state, self._current)
        self.say(f"Ended after {state.iteration} iterations: {reason}.")
        return state

    def _begin(self) -> RunState:
        state = self.place.state()
        if state is not None:
            self._current = self.place.model(state.model)
            self.say(f"Going on after iteration {state.iteration}.")
            return state
        self._current = first_policy(self.game, self.settings, self.seed, self.say)
        found = self._evaluated(self._policy())
        self.say(f"The first policy: {found}.")
        self.place.keep(self._current)  # before sinks, because a sink's file could take the name of the models' folder
        for sink in self.sinks:
            sink.begin(found)
        state = RunState(iteration=0, model=self._current.model, best=Best.of(0, self._current.model, found))
        self._save(state, self._current)
        return state

    def _save(self, state: RunState, current: Checkpoint) -> None:
        self.place.save(state, current)
        self.on_save(state)

    def _ended(self, state: RunState) -> str | None:
        asked, training = self.settings.collection, self.settings.training
        if state.iteration >= asked.num_iterations:
            return "those were all"
        if training.max_episodes is not None and state.games >= training.max_episodes:
            return f"{state.games} games were played"
        if training.early_stopping and len(state.recent) >= training.patience:
            most = most_rise(state.recent[-training.patience :])
            if most < training.least_rise:
                return f"over {training.patience} evaluations the outcome rose by at most {most:.3f} (95% certain)"
        return None

    def _iterate(self, state: RunState) -> RunState:
        number, settings = state.iteration + 1, self.settings
        begun, laps = process_time(), [perf_counter()]
        progress = state.iteration / max(1, settings.collection.num_iterations - 1)
        player = self._method.player(self.game, settings, self._policy())
        games = collect(self.game, state.model, player, settings, self._seed(number, "games"))
        laps.append(perf_counter())
        replayed, seed = [self.place.shard(shard) for shard in state.replayed], self._seed(number, "update")
        task = Task(self._current, games.shard, replayed, progress, state.recoveries, seed)
        update = self._method.prepare(self.game, settings, task)
        laps.append(perf_counter())
        learned = learn(self._current, update)
        self._current = learned.checkpoint
        laps.append(perf_counter())
        policy = self._policy()
        due = number % settings.training.eval_frequency == 0 or number == settings.collection.num_iterations
        found = self._evaluated(policy) if due else None
        laps.append(perf_counter())
        after = self._judged(state, learned, found, self._replayed(state, games.shard))
        saved = number % settings.training.checkpoint_frequency == 0
        if after.best != state.best or saved:
            self.place.keep(self._current)
        laps.append(perf_counter())
        iteration = Iteration(
            number=number,
            games=settings.collection.games_per_iteration,
            rows=games.shard.rows,
            mean_return=games.mean_return,
            mean_points=games.mean_points,
            metrics=learned.metrics,
            evaluation=found,
            best=after.best != state.best,
            recovered=learned.complaint is not None,
            seconds=Seconds(**dict(zip(PHASES, np.diff(laps).tolist(), strict=True)), processor=process_time() - begun),
            distributions=_distributions(policy, games.shard, update.advantages, learned),
        )
        for sink in self.sinks:
            sink.write(iteration, policy)
        if saved:  # after all sinks, because a resumed run does not repeat this iteration
            self._save(after, self._current)
        return after

    def _judged(self, state: RunState, learned: Learned, found: Evaluation | None, replay: ReplayBuffer) -> RunState:
        """Return the state after an iteration.

        ``found`` is the iteration's evaluation, if any.
        """
        number, model = state.iteration + 1, self._current.model
        best, recent, recoveries = state.best, state.recent, state.recoveries
        if learned.complaint is not None:
            recoveries += 1
            self.say(f"{learned.complaint} The update was discarded; the next ones learn more slowly.")
        if found is not None:
            recent = (*recent, (found.outcome, found.stderr))[-self.settings.training.patience :]
        # Of equals the later one counts as better: against a weak opponent, all evaluations end at 100% while the
        # policy still learns.
        if found is not None and found.outcome >= best.outcome and model != best.model:
            best = Best.of(number, model, found)
        return RunState(
            iteration=number,
            model=model,
            games=state.games + self.settings.collection.games_per_iteration,
            best=best,
            recent=recent,
            recoveries=recoveries,
            replayed=replay.shards,
            rows=replay.rows,
        )

    def _replayed(self, state: RunState, shard: Shard) -> ReplayBuffer:
        """Return the rows that the next iteration replays.

        If the run replays any, the iteration's shard is stored.
        """
        if not self.game.config.replay_rows:
            return ReplayBuffer(rows=state.rows)
        key, meta = self.place.keep_shard(shard), shard.meta
        reference = ShardRef(
            key=key, worker=WORKER, rows=shard.rows, games=shard.games, model=state.model, seed=meta.seed
        )
        return ReplayBuffer(state.replayed, state.rows).plus((reference,), self.game.config)

    def _evaluated(self, policy: Policy) -> Evaluation:
        asked, seed = self.settings.training, derive_seed(self.seed, "evaluation")  # one seed: the same deals each time
        games, temperature = asked.eval_games, asked.eval_temperature
        return evaluate(self.game, policy, asked.eval_opponent, games=games, temperature=temperature, seed=seed)

    def _policy(self) -> Policy:
        return policy_of(self._current, self.settings.games)

    def _seed(self, number: int, purpose: str) -> int:
        return derive_seed(self.seed, "iteration", number, purpose)
