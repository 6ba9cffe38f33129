"""Arguments and result of a game that is watched move by move.

Two players of a configuration play one game. The job that plays it is in ``flyball.app.api.watch_job``, because it
loads torch.
"""

from pydantic import Field

from flyball.app.api.arguments import Seed
from flyball.app.backends import OURS
from flyball.app.config import EXTERNAL_BACKEND, Compute, FrozenModel, GameConfig
from flyball.app.core import ConfigKey, FlyballError
from flyball.app.language.diplomacy_text import VARIANTS


class Unwatchable(FlyballError):
    """A configuration whose games this program cannot play move by move."""


class WatchSpec(Compute):
    """Arguments of the job: run, configuration, players, seat and seed.

    ``player`` and ``against`` are named as for ``flyball eval``. The player takes ``seat``, its opponent all others.
    """

    run: str
    config_file: str | None = None
    config: ConfigKey
    player: str
    against: str
    seat: int = Field(0, ge=0)
    seed: Seed = 0


class Decision(FrozenModel):
    """A decision of one of the players.

    Attributes:
        played: entries of the history before it.
        seat: to move.
        action: the chosen action, in the seat's numbering.
        value: expected outcome of the seat, in [-1, 1]; None from players that estimate none.
        top: the most probable actions and their probabilities, best first; empty for players without probabilities.
    """

    played: int
    seat: int
    action: int
    value: float | None
    top: tuple[tuple[int, float], ...]


class Progress(FrozenModel):
    """A report of the job: new history, and the next decision.

    ``history`` has the entries since the last report. ``decision`` is about to be played.
    """

    history: tuple[int, ...]
    decision: Decision


class WatchedGame(FrozenModel):
    """Result of the job.

    Attributes:
        player: the player's full name: a bot, or the hash of a model, perhaps with its search.
        against: the opponent's full name.
        history: the whole game's, as ``Table.history`` returns it.
        returns: each seat's outcome.
        truncated: whether the game was cut off at the move limit.
    """

    player: str
    against: str
    history: tuple[int, ...]
    returns: tuple[float, ...]
    truncated: bool


def check_watchable(config: GameConfig) -> None:
    """Refuse a configuration whose games cannot be watched.

    Raises ``Unwatchable`` for Diplomacy, and for a backend of the user's own, because only that backend knows how to
    play.
    """
    if config.backend not in OURS or config.is_external:
        raise Unwatchable(
            f"Games of {config.key} cannot be watched: they are played by the backend {config.backend}.",
            hint=f"Games of the backends {' and '.join(name for name in OURS if name != EXTERNAL_BACKEND)} can.",
        )
    if config.game in VARIANTS:
        raise Unwatchable(
            f"Games of {config.key} cannot be watched move by move: in Diplomacy, all powers move at once.",
            hint=f"How its models play: flyball league {config.key}",
        )
