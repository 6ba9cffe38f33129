"""Trained policies for the user's own programs."""

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flyball.app.api.arguments import Seed, check_arguments
from flyball.app.api.models import fetch_model
from flyball.app.api.runs import locate_run, silent
from flyball.app.config import Compute, Precision
from flyball.app.core import BadUsage, ConfigKey, ModelHash
from flyball.app.games import Mask, Observations
from flyball.app.games.table import Floats
from flyball.app.learning.devices import resolve
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import MASKED_LOGIT
from flyball.app.play.players import policy_of
from flyball.app.play.rollout import ask
from flyball.app.store import Checkpoint, MemoryStore, get_checkpoint


class LoadedPolicy:
    """A model's network that chooses actions.

    It is a ``Player``, so it can play matches.

    Attributes:
        game: the configuration that it was trained for.
        model: hash of its checkpoint.
        observation_size: D, features of an observation.
        actions: A, legal or not.
    """

    def __init__(self, checkpoint: Checkpoint, compute: Compute, seed: int) -> None:
        self._policy: Policy = policy_of(checkpoint, compute)
        self._random = np.random.default_rng(seed)
        self.game: ConfigKey = checkpoint.manifest.config_key
        self.model: ModelHash = checkpoint.model
        self.observation_size: int = checkpoint.manifest.obs_size
        self.actions: int = checkpoint.manifest.actions

    def act(self, obs: ArrayLike, mask: ArrayLike, *, temperature: float = 0.0) -> NDArray[np.int32]:
        """Return actions [N] for observations [N, D] and masks [N, A].

        Masks mark the legal actions. For one position, the shapes are [D] and [A], and one action is returned.

        A temperature of 0 takes the most probable action; others draw from the probabilities. Raises ``BadUsage`` for
        other shapes, numbers that are not finite and negative temperatures, or ``NoLegalAction``.
        """
        rows, masks = self._checked(obs, mask, temperature)
        points = self._random.random(len(rows)) if temperature else np.zeros(len(rows))
        chosen = ask(self._policy, rows, masks, temperature, points).action
        return chosen if np.ndim(mask) > 1 else chosen[0]

    def forward(self, obs: Observations, mask: Mask, temperature: float = 1.0) -> tuple[Floats, Floats]:
        """See ``Player.forward``.

        At a temperature of 0, the most probable action has the probability 1. Raises as ``act``.
        """
        rows, masks = self._checked(obs, mask, temperature)
        log_probs, values = self._policy.forward(rows, masks, temperature or 1.0)
        if not temperature:
            best = np.where(masks, self._policy.outputs(rows)[:, : self.actions], -np.inf).argmax(axis=1)
            log_probs = np.full_like(log_probs, MASKED_LOGIT)
            log_probs[np.arange(len(rows)), best] = 0
        return log_probs, values

    def _checked(self, obs: ArrayLike, mask: ArrayLike, temperature: float) -> tuple[Observations, Mask]:
        """Return observations [N, D] and masks [N, A]. Raises ``BadUsage``."""
        if not temperature >= 0:  # NaN, too
            raise BadUsage(f"temperature is {temperature}: it has to be 0 or more.")
        seen, legal = np.asarray(obs), np.asarray(mask, dtype=np.bool_)
        if seen.shape != (*legal.shape[:-1], self.observation_size) or legal.shape[-1:] != (self.actions,):
            raise BadUsage(
                f"Observations {seen.shape} and mask {legal.shape} do not fit: a position of {self.game} has "
                f"{self.observation_size} features and {self.actions} actions.",
                hint="`Table.observe` returns both.",
            )
        if seen.dtype != np.uint8:
            seen = seen.astype(np.float32)
        rows = np.atleast_2d(seen)
        if not np.isfinite(rows).all():
            row, feature = np.argwhere(~np.isfinite(rows))[0]
            raise BadUsage(
                f"Feature {feature} of observation {row} is {rows[row, feature]}.", hint="Observations are finite."
            )
        return rows, np.atleast_2d(legal)

    def __repr__(self) -> str:
        return (
            f"<policy of {self.game}, model {self.model[:12]}, "
            f"{self.observation_size} features to {self.actions} actions>"
        )


def load_policy(
    path: str | Path,
    game: str | None = None,
    *,
    seed: int = 0,
    device: str = "cpu",
    precision: Precision = "float32",
    run: str | Path = "run",
) -> LoadedPolicy:
    """Load a policy that chooses actions.

    Args:
        path: a checkpoint, a policy of `flyball export`, a folder of `flyball train` (its best), a run folder (its
            current model), or the beginning of a hash in ``run``.
        game: key of the configuration whose current model is meant, where a run plays several.
        seed: of the actions that are drawn with a temperature.
        device: cpu, cuda, cuda:1 or auto.
        precision: of the network.
        run: the run folder, for hashes; the user's own network may lie beside its ``flyball.toml``.

    Raises ``BadUsage``, ``UnknownModel``, ``UnusableFile``, ``NoModel``, ``WrongModel``, ``MissingDevice`` or another
    ``FlyballError``.

    >>> policy = flyball.load_policy("trained")
    >>> table = flyball.open_table(flyball.GAMES[policy.game], 2)  # two games at once
    >>> games = np.arange(2)
    >>> table.reset(games, [7, 8])
    >>> obs, mask = table.observe(games)
    >>> actions = policy.act(obs, mask)
    >>> bool(mask[games, actions].all())
    True
    """
    check_arguments(Seed, seed=seed)
    check_arguments(Precision, precision=precision)
    store, location = MemoryStore(), locate_run(run)
    model = fetch_model(str(path), "path", location, game, store, say=silent)
    return LoadedPolicy(get_checkpoint(store, model), Compute(device=str(resolve(device)), precision=precision), seed)
