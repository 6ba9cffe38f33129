"""The methods of the backends of networks: who plays the games, and how the network learns from them."""

from collections.abc import Mapping
from functools import partial
from math import cos, pi
from pathlib import Path
from typing import Any

import numpy as np

from flyball.app.config import GameConfig, PipelinePpoSettings, PipelineSearchSettings, PipelineSettings, TrainedBackend
from flyball.app.config.pipeline_loading import by_key, changed, training_settings
from flyball.app.core import BadUsage, reading
from flyball.app.learning import search_training
from flyball.app.learning.devices import decided
from flyball.app.learning.inference import Policy
from flyball.app.learning.learner import improve
from flyball.app.learning.samples import explained_variance, prepare
from flyball.app.learning.torchrun import run_on_ranks
from flyball.app.play.players import Player
from flyball.app.play.selfplay import searching_player
from flyball.app.store import Checkpoint, Shard
from flyball.app.telemetry import check_wandb
from flyball.app.train.game import run_game
from flyball.app.train.learning import check_start
from flyball.app.train.networks import NetworkMethod, Update
from flyball.app.train.sinks import read_log
from flyball.app.train.state import RunHead, RunState, TrainingFolder

BEGINNING = ("backend", "collection.initial_policy", "cloning.", "env.game", "network.")
"""Prefixes of the keys of settings that determine a run's first policy."""

SET_BY_GAME = ("network.obs_dim", "network.action_dim")
"""Keys below ``BEGINNING`` that are not compared: only the game's own number is accepted for them."""

CAUTION = 0.5  # factor on learning rate and clip after a divergence
CURIOSITY = 1.5  # factor on the entropy coefficient after a divergence, because a collapsed policy must explore more


class PolicyGradient(NetworkMethod):
    """The policy plays, and learns by PPO."""

    def player(self, policy: Policy) -> Player:
        """See ``NetworkMethod.player``."""
        return policy

    def prepare(self, state: RunState, base: Checkpoint, fresh: Shard, seed: int) -> Update:
        """See ``NetworkMethod.prepare``."""
        ppo = scheduled(self.settings.ppo, self.progress(state), state.recoveries)
        samples = prepare([fresh], ppo, self.game.spec.symmetries, seed, normalise=ppo.normalize_advantages)
        explained = explained_variance(samples)
        metrics = {"learning_rate": ppo.learning_rate, "entropy_coef": ppo.entropy_coef}
        work = partial(improve, base, samples, ppo, seed=seed)
        return Update(
            train=partial(run_on_ranks, work, self.settings.updates),
            metrics=metrics if explained is None else {**metrics, "explained_variance": explained},
            advantages=(samples.target - samples.value).numpy(),
        )


class Search(NetworkMethod):
    """The policy's tree searches play, and it learns what they find."""

    def player(self, policy: Policy) -> Player:
        """See ``NetworkMethod.player``."""
        return searching_player(policy, self.game.config, self.settings.collection.temperature)

    def prepare(self, state: RunState, base: Checkpoint, fresh: Shard, seed: int) -> Update:
        """See ``NetworkMethod.prepare``."""
        search, caution = self.settings.search, CAUTION**state.recoveries
        rate = _between(search, search.learning_rate, search.learning_rate_end, self.progress(state)) * caution
        replayed = [self.folder.shard(shard) for shard in state.replayed]
        work = partial(
            search_training.learn,
            base,
            [fresh],
            replayed,
            search,
            learning_rate=rate,
            epochs=search.epochs,
            symmetries=self.game.spec.symmetries,
            seed=seed,
        )
        return Update(
            train=partial(run_on_ranks, work, decided(self.settings.updates, self.settings.backend)),
            metrics={"learning_rate": rate, "replayed_rows": float(sum(shard.rows for shard in replayed))},
            advantages=np.empty(0, dtype=np.float32),
        )


METHODS: dict[TrainedBackend, type[NetworkMethod]] = {"policy_gradient": PolicyGradient, "search": Search}


def network_method(
    config: GameConfig,
    file: Path | None,
    values: Mapping[str, Any],
    seed: int | None,
    output: Path,
    *,
    resume: bool,
    settings_folder: str,
) -> NetworkMethod:
    """Return the method of a new or resumed run in ``output``, with checked settings; nothing is written.

    ``file`` and ``values`` change the settings: see ``training_settings``. A resumed run takes ``values`` alone.
    ``settings_folder`` is that of ``flyball.toml``.
    """
    folder = TrainingFolder(output)
    if not resume:
        head = RunHead(config=config.key, seed=seed or 0, settings=training_settings(config, file, values))
    elif file is None and seed is None:
        head = _resumed(folder, config, values)
    else:
        raise BadUsage(
            "A resumed run keeps its seed, and its settings but for single ones that are given.",
            hint="Leave out the seed and the settings file.",
        )
    check_wandb(head.settings.logging.wandb, "logging.wandb")
    method = METHODS[head.settings.backend](folder, head, run_game(config, head.settings, settings_folder), resume)
    if method.log:
        with reading(method.log):
            read_log(method.log)
    check_start(head.settings, begun=method.saved() is not None)
    return method


def _resumed(folder: TrainingFolder, config: GameConfig, values: Mapping[str, Any]) -> RunHead:
    """Return a run's head with changed settings; those that determined an existing first policy must stay."""
    head = folder.head()
    if head.config != config.key:
        raise BadUsage(f"The run in {folder.path} is one of {head.config}.")
    settings: PipelineSettings = changed(head.settings, values)
    after = by_key(settings)
    for key, value in by_key(head.settings).items() if folder.state() is not None else ():
        if key.startswith(BEGINNING) and key not in SET_BY_GAME and after[key] != value:
            raise BadUsage(f"{key} is {value!r}, and the run has begun with it: for {after[key]!r} begin another one.")
    return head.replace(settings=settings)


def scheduled(settings: PipelinePpoSettings, progress: float, recoveries: int) -> PipelinePpoSettings:
    """Return an iteration's settings, after ``recoveries`` divergences; ``progress`` rises from 0 to 1 over the run."""
    caution = CAUTION**recoveries
    rate = _between(settings, settings.learning_rate, settings.learning_rate_end, progress)
    entropy = _between(settings, settings.entropy_coef, settings.entropy_coef_end, progress)
    return settings.replace(
        learning_rate=rate * caution,
        clip_epsilon=settings.clip_epsilon * caution,
        entropy_coef=entropy * CURIOSITY**recoveries,
    )


def _between(
    settings: PipelinePpoSettings | PipelineSearchSettings, first: float, last: float | None, progress: float
) -> float:
    """Return the value on the schedule from ``first`` to ``last``; without ``last`` it stays ``first``."""
    weight = progress if settings.schedule == "linear" else (1 - cos(pi * progress)) / 2
    return first if last is None else first + (last - first) * weight
