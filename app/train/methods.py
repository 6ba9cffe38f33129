"""Learning methods of a run: collecting games, updating the policy.

A method says which player collects a run's games, and how its policy is updated from them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import cos, pi
from typing import Any, NamedTuple

import numpy as np

from app.config import PipelinePpoSettings, PipelineSearchSettings, PipelineSettings, TrainedBackend
from app.learning import search_training
from app.learning.devices import decided
from app.learning.inference import Policy
from app.learning.learner import Improvement, improve
from app.learning.ppo import TrainingDiverged
from app.learning.samples import explained_variance, prepare
from app.learning.torchrun import run_on_ranks
from app.learning.training import DiscardedUpdate
from app.play.players import Player
from app.play.selfplay import searching_player
from app.store import Checkpoint, Shard
from app.train.game import RunGame
from app.train.iteration import Floats
from app.train.learning import successor

CAUTION = 0.5  # factor on learning rate and clip after a divergence
CURIOSITY = 1.5  # factor on the entropy coefficient after a divergence, because a collapsed policy must explore more


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Inputs of an update."""

    base: Checkpoint
    fresh: Shard  # the iteration's rows
    replayed: Sequence[Shard]  # of earlier iterations
    progress: float  # of the run, from 0 to 1
    recoveries: int  # updates that diverged so far
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """An update whose samples are ready."""

    train: Callable[..., Improvement[Any]]  # its argument ``report`` receives each epoch's number and metrics
    metrics: Mapping[str, float]  # known before training: the scheduled settings, and figures of the samples
    advantages: Floats  # [R] of the fresh rows, before normalisation; empty where none are estimated


@dataclass(frozen=True, slots=True)
class Learned:
    """Result of an update."""

    checkpoint: Checkpoint  # the new policy; the old one where the update diverged
    metrics: Mapping[str, float]  # of the last epoch, and those of the ``Update``
    gradients: Mapping[str, float]  # norms of the last batch's gradient by parameter; empty where the update diverged
    complaint: str | None = None  # why the update was discarded; None where it was not


def learn(base: Checkpoint, update: Update) -> Learned:
    """Update ``base``; an update that diverges is discarded."""
    known = {**update.metrics, "epochs": 0.0}

    def count(number: int, _metrics: object) -> None:
        known["epochs"] = float(number)

    try:
        result = update.train(report=count)
    except TrainingDiverged as error:
        return Learned(base, asdict(error.metrics) | known, {}, error.message)
    except DiscardedUpdate as error:
        return Learned(base, known, {}, error.message)
    made = successor(base, result.parameters, result.optimizer)
    return Learned(made, asdict(result.metrics) | known, result.gradients)


class Method(NamedTuple):
    """A learning method."""

    player: Callable[[RunGame, PipelineSettings, Policy], Player]  # collects the games of a policy
    prepare: Callable[[RunGame, PipelineSettings, Task], Update]  # makes the samples of an update


def _policy(_game: RunGame, _settings: PipelineSettings, policy: Policy) -> Player:
    return policy


def _by_gradient(game: RunGame, settings: PipelineSettings, task: Task) -> Update:
    ppo = scheduled(settings.ppo, task.progress, task.recoveries)
    samples = prepare([task.fresh], ppo, game.spec.symmetries, task.seed, normalise=ppo.normalize_advantages)
    explained = explained_variance(samples)
    metrics = {"learning_rate": ppo.learning_rate, "entropy_coef": ppo.entropy_coef}
    work = partial(improve, task.base, samples, ppo, seed=task.seed)
    return Update(
        train=partial(run_on_ranks, work, settings.updates),
        metrics=metrics if explained is None else {**metrics, "explained_variance": explained},
        advantages=(samples.target - samples.value).numpy(),
    )


def _searcher(game: RunGame, settings: PipelineSettings, policy: Policy) -> Player:
    return searching_player(policy, game.config, settings.collection.temperature)


def _by_search(game: RunGame, settings: PipelineSettings, task: Task) -> Update:
    search = settings.search
    rate = _between(search, search.learning_rate, search.learning_rate_end, task.progress) * CAUTION**task.recoveries
    work = partial(
        search_training.learn,
        task.base,
        [task.fresh],
        task.replayed,
        search,
        learning_rate=rate,
        epochs=search.epochs,
        symmetries=game.spec.symmetries,
        seed=task.seed,
    )
    return Update(
        train=partial(run_on_ranks, work, decided(settings.updates, settings.backend)),
        metrics={"learning_rate": rate, "replayed_rows": float(sum(shard.rows for shard in task.replayed))},
        advantages=np.empty(0, dtype=np.float32),
    )


METHODS: dict[TrainedBackend, Method] = {
    "policy_gradient": Method(_policy, _by_gradient),
    "search": Method(_searcher, _by_search),
}


def scheduled(settings: PipelinePpoSettings, progress: float, recoveries: int) -> PipelinePpoSettings:
    """Return an iteration's settings, after ``recoveries`` divergences.

    ``progress`` rises from 0 to 1 over the run.
    """
    calm = CAUTION**recoveries
    rate = _between(settings, settings.learning_rate, settings.learning_rate_end, progress)
    entropy = _between(settings, settings.entropy_coef, settings.entropy_coef_end, progress)
    return settings.replace(
        learning_rate=rate * calm,
        clip_epsilon=settings.clip_epsilon * calm,
        entropy_coef=entropy * CURIOSITY**recoveries,
    )


def _between(
    settings: PipelinePpoSettings | PipelineSearchSettings, first: float, last: float | None, progress: float
) -> float:
    """Return the value on the schedule from ``first`` to ``last``.

    Without ``last`` the value stays ``first``.
    """
    weight = progress if settings.schedule == "linear" else (1 - cos(pi * progress)) / 2
    return first if last is None else first + (last - first) * weight
