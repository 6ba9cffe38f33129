"""Players: model policies, built-in players and user-defined bots."""

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Protocol, runtime_checkable

import numpy as np

from flyball.app.config import CPU, Compute, GameConfig
from flyball.app.core import HEURISTIC, RANDOM, FlyballError, ModelHash, is_judge, split_search
from flyball.app.games import Heuristic, Mask, Observations, TableSpec
from flyball.app.games.table import Floats
from flyball.app.learning.devices import decided
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import MASKED_LOGIT, bytes_to_parameters, visible_shape
from flyball.app.play.engines import EnginePlayer
from flyball.app.play.own_players import DecidingPlayer, load_own_player
from flyball.app.play.search import SearchPlayer
from flyball.app.store import NETWORK, BlobStore, Checkpoint, get_checkpoint


class WrongModel(FlyballError, code="usage"):
    """A model of another game or another encoding, or not a network."""


class JudgeInTraining(FlyballError):
    """A judge named where a model could learn from it."""


class NoHeuristic(FlyballError, code="usage"):
    """A game without a built-in heuristic player."""


class PolicyPlayer(Protocol):
    """A player with a probability for each action."""

    def forward(self, obs: Observations, mask: Mask, temperature: float = 1.0) -> tuple[Floats, Floats]:
        """Return log-probabilities [K, A], -1e9 for illegal actions, and values [K] of observations [K, D]."""


@runtime_checkable
class LogitPlayer(PolicyPlayer, Protocol):
    """A player by logits, which suffice to draw actions. Normalising and masking all of them would double the cost."""

    def outputs(self, obs: Observations) -> Floats:
        """Return [K, A + 1] of observations [K, D]: the logits of all actions, legal or not, then the value."""


Player = PolicyPlayer | DecidingPlayer
"""Anything that plays."""


class RandomPlayer:
    """Chooses uniformly among the legal actions, at any temperature."""

    def forward(self, obs: Observations, mask: Mask, temperature: float = 1.0) -> tuple[Floats, Floats]:  # noqa: ARG002
        """See ``PolicyPlayer.forward``; all values are 0."""
        even = -np.log(mask.sum(axis=1, keepdims=True, dtype=np.float32))
        return np.where(mask, even, np.float32(MASKED_LOGIT)), np.zeros(len(mask), dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class HeuristicPlayer:
    """Plays by a heuristic. The temperature is ignored, so that the player's strength is a fixed yardstick."""

    heuristic: Heuristic

    def forward(self, obs: Observations, mask: Mask, temperature: float = 1.0) -> tuple[Floats, Floats]:  # noqa: ARG002
        """See ``PolicyPlayer.forward``; all values are 0."""
        weights = np.where(mask, self.heuristic(obs, mask), -np.inf)
        weights -= weights.max(axis=1, keepdims=True)
        log_probs = weights - np.log(np.exp(weights).sum(axis=1, keepdims=True))
        return np.where(mask, log_probs, MASKED_LOGIT).astype(np.float32), np.zeros(len(mask), dtype=np.float32)


BUILT_IN = (RandomPlayer, HeuristicPlayer)  # these players ignore the temperature


def load_player(  # noqa: C901 - a case for each kind of player
    store: BlobStore, name: str, spec: TableSpec, compute: Compute = CPU, config: GameConfig | None = None
) -> Player:
    """Return the player of a name.

    A name is a model's hash, ``'random'``, ``'heuristic'``, a heuristic's level, or a bot of the configuration. After a
    hash, ``+64`` adds a search of 64 positions for each move; the search needs ``config``. ``config`` is also the
    configuration whose ``bots`` are known.

    Raises ``WrongModel``, ``NoHeuristic``, ``MissingBlob``, ``DamagedBlob``, ``MissingDevice``, ``Unsearchable`` or
    ``JudgeInTraining``; for a user-defined bot ``UnknownPlugin``, ``UnusablePlayer``, ``EngineFailed`` or
    ``NoNotation``.
    """
    if is_judge(name):
        raise JudgeInTraining(
            f"{name} is a judge, and judges are not trained against.",
            hint="Name it in flyball eval, as --against or --model.",
        )
    if config is not None and name in config.bots:
        settings = config.bots[name]
        if settings.player is not None:
            return load_own_player(name, settings, config)
        return EnginePlayer(name, settings, config, compute.settings_folder)
    if name == RANDOM:
        return RandomPlayer()
    if name == HEURISTIC and spec.heuristic is None:
        raise NoHeuristic(
            f"There is no heuristic player of {spec.rules_version}.",
            hint="Leave 'heuristic' out of the configuration's built-in players.",
        )
    heuristic = spec.heuristic if name == HEURISTIC else spec.levels.get(name)
    if heuristic is not None:
        return HeuristicPlayer(heuristic)
    model, simulations = split_search(name)
    checkpoint = get_checkpoint(store, ModelHash(model))
    _check_network(checkpoint)
    manifest = checkpoint.manifest
    if manifest.shape != (shape := visible_shape(manifest.network, spec.shape)):
        raise WrongModel(
            f"Model {model} is for {manifest.shape}, and {spec.rules_version} has {shape}.",
            hint="Play it under its own configuration, or start a new model when the encoding has changed. A model of "
            "an OpenSpiel card game that learned from observations needs games.KEY.observation = 'observation'.",
        )
    policy = policy_of(checkpoint, compute)
    if simulations is None:
        return policy
    assert config is not None
    return SearchPlayer(policy, config, simulations)


def policy_of(checkpoint: Checkpoint, compute: Compute = CPU) -> Policy:
    """Return the policy of a checkpoint.

    The checkpoint's backend decides what precision ``auto`` means. Raises ``WrongModel`` for a model that is not a
    network, or ``MissingDevice``.
    """
    _check_network(checkpoint)
    manifest = checkpoint.manifest
    parameters = bytes_to_parameters(checkpoint.parameters)
    return Policy(manifest.network, manifest.shape, parameters, decided(compute, manifest.backend))


def _check_network(checkpoint: Checkpoint) -> None:
    manifest = checkpoint.manifest
    if manifest.content != NETWORK:
        raise WrongModel(
            f"Model {checkpoint.model} is a {manifest.content} of backend {manifest.backend}, not a network.",
            hint=f"Play it under a configuration with backend = {manifest.backend!r}.",
        )


class PlayerCache:
    """Thread-safe cache of players by content hash or bot and settings; the least recently used are dropped."""

    def __init__(self, capacity: int = 16) -> None:  # enough for a league; 16 small networks take 10 MB
        self._capacity = capacity
        self._players: OrderedDict[tuple[object, ...], Player] = OrderedDict()
        self._lock = Lock()

    def load(
        self, store: BlobStore, name: str, spec: TableSpec, compute: Compute = CPU, config: GameConfig | None = None
    ) -> Player:
        """Return a player, loaded on first use; see ``load_player``.

        A player that searches is loaded each time. It depends on the settings of its search, and holds the games that
        it searches, so no two threads may share it.
        """
        if split_search(name)[1] is not None:
            return load_player(store, name, spec, compute, config)
        key: tuple[object, ...] = (store, name, spec.rules_version, compute.device, compute.precision)
        if config is not None and name in config.bots:
            key = (name, config.model_dump_json(), compute.settings_folder)
        with self._lock:
            if key in self._players:
                self._players.move_to_end(key)
                return self._players[key]
        player = load_player(store, name, spec, compute, config)
        with self._lock:
            self._players[key] = player
            while len(self._players) > self._capacity:
                self._players.popitem(last=False)
        return player


PLAYERS = PlayerCache()
