"""Arguments and results of the jobs that play against a person: see ``flyball.app.api.play_job``, which loads torch."""

from flyball.app.api.arguments import Seed
from flyball.app.api.watching import Decision, check_watchable
from flyball.app.config import LANGUAGE_BACKEND, Compute, FrozenModel, GameConfig
from flyball.app.core import ConfigKey, FlyballError
from flyball.app.games.positions import TextPosition, spectator_of
from flyball.app.games.session import GameSession
from flyball.app.play.search import Weighed

PERSON = "a person"
"""Takes the place of a player's name. No player can have it, because names have no spaces."""


class Unplayable(FlyballError):
    """A configuration whose games a person cannot play."""


class PlaySpec(Compute):
    """Arguments of the jobs: run, configuration, seed, the player of each seat, and the actions so far."""

    run: str
    config_file: str | None = None
    config: ConfigKey
    seed: Seed
    players: tuple[str, ...]
    actions: tuple[int, ...] = ()


class Seated(FrozenModel):
    """Full names of the players: bots, or hashes of models, perhaps with their searches."""

    players: tuple[str, ...]


class Answer(FrozenModel):
    """Decisions of the other seats, until a person is to move or the game is over."""

    decisions: tuple[Decision, ...]


class Opinion(FrozenModel):
    """A model's opinion about a position, for the seat to move.

    Attributes:
        player: who was asked.
        value: expected outcome that the network sees, in [-1, 1].
        top: the network's most probable actions and their probabilities, best first.
        positions: looked at by the search; 0 without one.
        searched_value: the search's value.
        searched: the most visited actions, best first.
    """

    player: str
    value: float
    top: tuple[tuple[int, float], ...]
    positions: int = 0
    searched_value: float = 0.0
    searched: tuple[Weighed, ...] = ()


def check_playable(config: GameConfig) -> None:
    """Refuse a configuration whose games a person cannot play. Raises ``Unplayable`` or ``Unwatchable``."""
    check_watchable(config)
    if config.backend == LANGUAGE_BACKEND:
        raise Unplayable(
            f"A person cannot play {config.key}: language models do not play against people yet.",
            hint="Choose a configuration whose models are networks.",
        )
    history = GameSession(config, seed=0).standing().history
    if isinstance(spectator_of(config).position(history), TextPosition):
        raise Unplayable(
            f"A person cannot play {config.key}: its positions are not drawn.",
            hint="The drawn games are the board games by Flyball's own rules or OpenSpiel's, and Flyball's Hearts.",
        )
