"""A run's game: the configuration changed by its settings, and the other players."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from app.config import SELF, GameConfig, NetworkSettings, PipelineSettings
from app.core import FlyballError
from app.games import TableSpec, open_table, own_hearts
from app.games.hearts.rules import HeartsRules
from app.games.hearts.table import hand_points, moons
from app.learning.inference import Policy
from app.learning.network import bytes_to_parameters
from app.play.players import Player, load_player
from app.store import Checkpoint, MemoryStore


class UnfitSettings(FlyballError):
    """Settings of a run that do not fit its game."""


@dataclass(frozen=True)
class RunGame:
    """A game and its built-in players."""

    config: GameConfig  # with the rewards, rules and network of the run

    @cached_property
    def spec(self) -> TableSpec:
        """The game's description."""
        return open_table(self.config, slots=0).spec

    def points(self, returns: NDArray[np.float32]) -> NDArray[np.int64] | None:
        """Return the points [G, P] of games from their outcomes [G, P], where a game is one hand of Hearts."""
        rules = self._single_hands
        return None if rules is None else hand_points(returns, moon_for_shooter=rules.moon_for_shooter)

    def moons(self, returns: NDArray[np.float32]) -> NDArray[np.bool_] | None:
        """Tell who shot the moon [G, P] from the outcomes [G, P], where a game is one hand of Hearts."""
        return None if self._single_hands is None else moons(returns)

    @cached_property
    def _single_hands(self) -> HeartsRules | None:
        rules = own_hearts(self.config)
        return rules if rules is not None and rules.hands == 1 else None

    def bot(self, name: str) -> Player:
        """Return a built-in player."""
        return load_player(MemoryStore(), name, self.spec)

    def policy(self, checkpoint: Checkpoint, device: str = "cpu") -> Policy:
        """Return a model that plays."""
        parameters = bytes_to_parameters(checkpoint.parameters)
        return Policy(self.config.network, self.spec.observation_size, self.spec.actions, parameters, device)


def run_game(config: GameConfig, settings: PipelineSettings) -> RunGame:
    """Return the game of a run. Raises ``UnfitSettings`` where they do not fit it, ``UnknownGame``."""
    changes = {
        "game": settings.env.game or config.game,
        "network": NetworkSettings(hidden=settings.network.widths),
        "selfplay": config.selfplay.replace(rewards=settings.env.reward_mode),
    }
    game = RunGame(config.replace(**changes))
    sizes = {"obs_dim": game.spec.observation_size, "action_dim": game.spec.actions}
    for key, size in sizes.items():
        asked = getattr(settings.network, key)
        if asked is not None and asked != size:
            raise UnfitSettings(f"network.{key} is {asked}; {config.key} has {size}.", hint="Leave it out.")
    bots = [("training.eval_opponent", settings.training.eval_opponent)]
    bots += [("collection.opponents", name) for name in settings.collection.opponents if name != SELF]
    if settings.collection.initial_policy == "behavioral_clone" and not settings.cloning.experience:
        bots.append(("cloning.teacher", settings.cloning.teacher))
    for key, name in bots:
        if not game.spec.has_bot(name):
            hint = f"It has {', '.join(game.spec.bots)}."
            raise UnfitSettings(f"{key}: {config.key} has no bot {name!r}.", hint=hint)
    return game
