"""Players written by the user: Python objects, whose answers are checked.

A factory, ``factory(config, options)``, returns an object with one of these methods:

- ``forward(obs, mask, temperature)`` returns log-probabilities [K, A] and values [K]: see ``PolicyPlayer``;
- ``choose(obs, mask, points)`` returns actions [K]; ``points`` [K] are uniform in [0, 1), to draw by;
- ``decide(turn, points)`` returns actions [K] of a ``Turn``, which has the games' histories too.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball.app.config import BotSettings, GameConfig
from flyball.app.core import FlyballError, load_plugin, located
from flyball.app.games import Mask, Observations, Table
from flyball.app.games.table import Floats

Points = NDArray[np.float64]

PLAYERS_GROUP = "flyball.players"
"""Group of package entry points that are factories of players."""

_CHECK = "See: flyball check player"


class UnusablePlayer(FlyballError):
    """A factory that makes no player, or a player with unusable answers."""


class Turn(NamedTuple):
    """K positions with a player to move; D features, A actions."""

    obs: Observations  # [K, D], from the seat to move
    mask: Mask  # [K, A] legal actions
    table: Table  # holds the games; ``table.history(slot)`` are a game's actions so far
    slots: NDArray[np.int64]  # [K] the games' slots in the table


class DecidingPlayer(ABC):
    """A player that chooses actions without probabilities. It ignores the temperature, and its values are 0."""

    @abstractmethod
    def decide(self, turn: Turn, points: Points) -> NDArray[np.int32]:
        """Return a legal action for each position [K]; ``points`` [K], uniform in [0, 1), decide random choices."""


def load_own_player(name: str, settings: BotSettings, config: GameConfig) -> "OwnPolicy | OwnDecider":
    """Return the Python player that a configuration calls ``name``. Raises ``UnknownPlugin`` or ``UnusablePlayer``."""
    assert settings.player is not None
    factory = load_plugin(PLAYERS_GROUP, settings.player)
    player = _call_user(name, settings.player, factory, config, deepcopy(settings.options))
    for method, adapter in _ADAPTERS.items():
        if callable(function := getattr(player, method, None)):
            return adapter(name, function)
    raise UnusablePlayer(
        f"The bot {name} is made by {settings.player}, which returned a {type(player).__name__} that cannot play.",
        hint=f"Return an object with one of the methods {', '.join(_ADAPTERS)}.",
    )


def _call_user(name: str, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function; an error that is no ``FlyballError`` becomes an ``UnusablePlayer`` naming the bot."""
    try:
        return function(*arguments)
    except FlyballError:
        raise
    except Exception as error:
        raise UnusablePlayer(
            f"The bot {name} failed: {what} raised {type(error).__name__}: {located(error)}.", hint=_CHECK
        ) from error


class OwnPolicy:
    """A user's ``forward``, with its answers checked."""

    def __init__(self, name: str, forward: Callable[..., Any]) -> None:
        self._name, self._forward = name, forward

    def forward(self, obs: Observations, mask: Mask, temperature: float = 1.0) -> tuple[Floats, Floats]:
        """See ``PolicyPlayer.forward``. Raises ``UnusablePlayer``."""
        # Copies, because the originals are recorded.
        returned = _call_user(self._name, "forward", self._forward, obs.copy(), mask.copy(), temperature)
        try:
            log_probs, values = (np.asarray(array, dtype=np.float32) for array in returned)
        except Exception as error:  # arrays of other libraries raise errors of their own
            raise self._unusable(f"did not return two arrays of numbers ({error})") from error
        if (log_probs.shape, values.shape) != (mask.shape, mask.shape[:1]):
            raise self._unusable(
                f"returned arrays of shapes {log_probs.shape} and {values.shape}, not {mask.shape} and {mask.shape[:1]}"
            )
        if not np.isfinite(values).all():
            raise self._unusable("returned a value that is not finite")
        best = np.where(mask, log_probs, -np.inf).max(axis=1)
        if not np.isfinite(best).all():
            row = int(np.flatnonzero(~np.isfinite(best))[0])
            raise self._unusable(f"returned only infinite or NaN log-probabilities of the legal actions in row {row}")
        return log_probs, values

    def _unusable(self, what: str) -> UnusablePlayer:
        hint = "Return log-probabilities [K, A], about -1e9 for illegal actions, and values [K]."
        return UnusablePlayer(f"The bot {self._name} failed: its forward {what}.", hint=hint)


class OwnDecider(DecidingPlayer):
    """A user's ``decide``, with its answers checked."""

    method = "decide"

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name, self._function = name, function

    def decide(self, turn: Turn, points: Points) -> NDArray[np.int32]:
        """See ``DecidingPlayer.decide``. Raises ``UnusablePlayer``."""
        copied = turn._replace(obs=turn.obs.copy(), mask=turn.mask.copy())  # because the originals are recorded
        returned = _call_user(self._name, self.method, self._function, *self._arguments(copied), points.copy())
        try:
            actions = np.asarray(returned)
        except Exception as error:  # arrays of other libraries raise errors of their own
            raise self._unusable(f"did not return an array ({error})") from error
        if actions.shape != points.shape or actions.dtype.kind not in "iu":
            raise self._unusable(f"returned {actions.dtype} {actions.shape}, not integers {points.shape}")
        inside = (actions >= 0) & (actions < turn.mask.shape[1])
        legal = inside & turn.mask[np.arange(len(actions)), np.where(inside, actions, 0)]
        if not legal.all():
            row = int(np.argmin(legal))
            allowed = np.flatnonzero(turn.mask[row]).tolist()
            raise self._unusable(f"chose action {int(actions[row])} in row {row}, where {allowed} are legal")
        return actions.astype(np.int32)

    def _arguments(self, turn: Turn) -> tuple[Any, ...]:
        return (turn,)

    def _unusable(self, what: str) -> UnusablePlayer:
        hint = "Return an array of integers [K], each an action where the row's mask is true."
        return UnusablePlayer(f"The bot {self._name} failed: its {self.method} {what}.", hint=hint)


class OwnChooser(OwnDecider):
    """A user's ``choose``, with its answers checked."""

    method = "choose"

    def _arguments(self, turn: Turn) -> tuple[Any, ...]:
        return turn.obs, turn.mask


_ADAPTERS: dict[str, Callable[[str, Callable[..., Any]], OwnPolicy | OwnDecider]] = {
    "forward": OwnPolicy,
    "choose": OwnChooser,
    "decide": OwnDecider,
}
