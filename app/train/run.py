"""The loop: collect, advantages, PPO, evaluate, checkpoint.

An iteration depends on the state and the model that it begins with, the settings and the seed, and on nothing else.
So a run that was interrupted repeats the iterations after its last checkpoint exactly, and goes on as if nothing had
happened.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter, process_time

import numpy as np
import torch

from app.config import PipelineSettings
from app.core import FlyballError, derive_seed
from app.learning.inference import Policy
from app.learning.samples import Samples, explained_variance, prepare
from app.store import Checkpoint
from app.train.collecting import collect
from app.train.evaluating import described, evaluate, most_rise
from app.train.game import RunGame
from app.train.iteration import Distributions, Evaluation, Iteration, Seconds, Sink
from app.train.learning import Learned, learn, scheduled
from app.train.start import first_policy
from app.train.state import Best, RunPlace, RunState

SAMPLED = 1024
"""Rows that histograms are made of."""


class Stopwatch:
    """Measures the phases of an iteration, one after another."""

    def __init__(self) -> None:
        self._last, self._processor = perf_counter(), process_time()
        self._laps: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """Say that a phase has just ended."""
        now = perf_counter()
        self._laps[phase] = now - self._last
        self._last = now

    def seconds(self) -> Seconds:
        """Return what the phases took. All of them must have been told."""
        return Seconds(**self._laps, processor=process_time() - self._processor)


def distributions_of(policy: Policy, samples: Samples, gradients: Mapping[str, float]) -> Distributions:
    """Return what histograms are made of, from rows spread evenly over ``samples``."""
    rows = np.linspace(0, len(samples) - 1, min(SAMPLED, len(samples))).astype(np.int64)
    outputs = policy.outputs(samples.obs[rows].numpy())
    mask = samples.mask[rows].numpy()
    return Distributions(
        logits=outputs[:, : policy.actions][mask],
        values=outputs[:, policy.actions],
        advantages=(samples.target - samples.value)[rows].numpy(),
        gradients=gradients,
    )


class TooManyDivergences(FlyballError):
    """A run whose updates go wrong again and again."""


@dataclass(slots=True, eq=False)
class TrainingRun:
    """A run in a folder, begun or resumed.

    Args:
        place: its folder.
        game: what is played.
        settings: of the run.
        seed: of all that is drawn.
        sinks: receive every iteration.
        say: receives other messages, in words.
    """

    place: RunPlace
    game: RunGame
    settings: PipelineSettings
    seed: int
    sinks: Sequence[Sink] = ()
    say: Callable[[str], None] = lambda _text: None
    _current: Checkpoint = field(init=False)

    def run(self) -> RunState:
        """Train until an end is reached, and return where. Raises ``TooManyDivergences``."""
        torch.set_num_threads(self.settings.training.threads)
        state = self._begin()
        while (reason := self._ended(state)) is None:
            state = self._checked(self._iterate(state))
        self.place.save(state, self._current)
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
        self.say(f"The first policy: {described(found)}.")
        self.place.keep(self._current)
        for sink in self.sinks:
            sink.begin(found)
        state = RunState(iteration=0, model=self._current.model, best=Best.of(0, self._current.model, found))
        self.place.save(state, self._current)
        return state

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
        number, watch, settings = state.iteration + 1, Stopwatch(), self.settings
        progress = state.iteration / max(1, settings.collection.num_iterations - 1)
        ppo = scheduled(settings.ppo, progress, state.recoveries)
        games = collect(self.game, state.model, self._policy(), settings, self._seed(number, "games"))
        watch.lap("collect")
        samples = prepare(
            [games.shard],
            ppo,
            self.game.spec.symmetries,
            self._seed(number, "update"),
            normalise=ppo.normalize_advantages,
        )
        watch.lap("advantages")
        learned = learn(self._current, samples, ppo, self._seed(number, "update"), settings.training.device)
        self._current = learned.checkpoint
        watch.lap("update")
        policy = self._policy()
        found = self._evaluated(policy) if self._is_evaluated(number) else None
        watch.lap("evaluate")
        after = self._judged(state, learned, found)
        if after.best != state.best or self._is_due(number):
            self.place.keep(self._current)
        watch.lap("checkpoint")
        iteration = Iteration(
            number=number,
            games=settings.collection.games_per_iteration,
            rows=games.shard.rows,
            mean_return=games.mean_return,
            mean_points=games.mean_points(self.game),
            **asdict(learned.metrics),
            explained_variance=explained_variance(samples),
            learning_rate=ppo.learning_rate,
            entropy_coef=ppo.entropy_coef,
            epochs=learned.epochs,
            evaluation=found,
            best=after.best != state.best,
            recovered=learned.complaint is not None,
            seconds=watch.seconds(),
            distributions=distributions_of(policy, samples, learned.gradients),
        )
        for sink in self.sinks:
            sink.write(iteration, policy)
        if self._is_due(number):  # only after all sinks, because a resumed run continues after the checkpoint
            self.place.save(after, self._current)
        return after

    def _is_evaluated(self, number: int) -> bool:
        return number % self.settings.training.eval_frequency == 0 or number == self.settings.collection.num_iterations

    def _judged(self, state: RunState, learned: Learned, found: Evaluation | None) -> RunState:
        """Return the state after an iteration."""
        number, model = state.iteration + 1, self._current.model
        best, recent = state.best, state.recent
        if found is not None:
            recent = (*recent, (found.outcome, found.stderr))[-self.settings.training.patience :]
        if found is not None and found.outcome > best.outcome:
            best = Best.of(number, model, found)
        return RunState(
            iteration=number,
            model=model,
            games=state.games + self.settings.collection.games_per_iteration,
            best=best,
            recent=recent,
            recoveries=state.recoveries + self._counted(learned),
        )

    def _is_due(self, number: int) -> bool:
        return number % self.settings.training.checkpoint_frequency == 0

    def _counted(self, learned: Learned) -> int:
        if learned.complaint is None:
            return 0
        self.say(f"{learned.complaint} The update was thrown away; the next ones learn more slowly.")
        return 1

    def _checked(self, state: RunState) -> RunState:
        """Return ``state``. Raises ``TooManyDivergences``."""
        if state.recoveries > self.settings.training.max_recoveries:
            raise TooManyDivergences(
                f"{state.recoveries} updates diverged in {state.iteration} iterations.",
                hint="Begin a new run with a lower ppo.learning_rate, or more games in an iteration.",
            )
        return state

    def _evaluated(self, policy: Policy) -> Evaluation:
        asked = self.settings.training
        seed = derive_seed(self.seed, "evaluation")  # the same deals each time: what differs is the policy
        return evaluate(
            self.game,
            policy,
            asked.eval_opponent,
            games=asked.eval_games,
            temperature=asked.eval_temperature,
            seed=seed,
        )

    def _policy(self) -> Policy:
        return self.game.policy(self._current, self.settings.training.device)

    def _seed(self, number: int, purpose: str) -> int:
        return derive_seed(self.seed, "iteration", number, purpose)
