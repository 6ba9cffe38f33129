"""A shard of experience: what some games of self-play left for training and for the parity check."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.config import Settings
from app.core import ConfigKey, FlyballError, Name

# The arrays of one value a row, and what they are made of.
ROW_TYPES: dict[str, type[np.generic]] = {
    "action": np.int32,
    "log_prob": np.float32,
    "value": np.float32,
    "reward": np.float32,
    "done": np.bool_,
    "truncated": np.bool_,
    "bootstrap": np.float32,
    "seat": np.int8,
    "game": np.int32,
    "step": np.int32,
}
GAME_TYPES: dict[str, type[np.generic]] = {
    "returns": np.float32,
    "history": np.int32,
    "history_offsets": np.int64,
}


class BadShard(FlyballError):
    """Arrays that do not make one shard."""


class ShardMeta(Settings):
    """Origin of the experience. ``model`` and ``opponents`` played it: models by their hashes, bots by name.

    Games have bots that a ``PlayerName`` cannot name, such as the levels of Hearts.
    """

    config_key: ConfigKey
    rules_version: str
    model: Name
    opponents: tuple[Name, ...]
    seed: int
    worker: str
    temperature: float = Field(gt=0)


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """R rows (one decision each) of G games with P seats; D features, A actions.

    Attributes:
        obs: [R, D] observations, uint8 or float32.
        mask: [R, A] legal actions, bool.
        action: [R] the action taken.
        log_prob: [R] its log-probability under the policy that played, temperature included.
        value: [R] the critic's value before the action.
        reward: [R] what the seat gained until its next decision or the end.
        done: [R] the game ended before the seat's next decision.
        truncated: [R] the game was cut off there instead.
        bootstrap: [R] the critic's value of the state a truncated row leads to, else 0.
        seat: [R] who decided.
        game: [R] which game, 0 … G - 1.
        step: [R] number of the decision within its game; grows within an episode.
        returns: [G, P] outcomes of the games.
        history: [H] all actions of all games, chance outcomes included.
        history_offsets: [G + 1] where each game's part of the history begins.
        meta: where all this comes from.

    Raises ``BadShard`` when shapes, types or values do not agree.
    """

    obs: NDArray[np.uint8] | NDArray[np.float32]
    mask: NDArray[np.bool_]
    action: NDArray[np.int32]
    log_prob: NDArray[np.float32]
    value: NDArray[np.float32]
    reward: NDArray[np.float32]
    done: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    bootstrap: NDArray[np.float32]
    seat: NDArray[np.int8]
    game: NDArray[np.int32]
    step: NDArray[np.int32]
    returns: NDArray[np.float32]
    history: NDArray[np.int32]
    history_offsets: NDArray[np.int64]
    meta: ShardMeta

    def __post_init__(self) -> None:
        _check_shapes(self)
        _check_values(self)

    @property
    def rows(self) -> int:
        """R, the number of decisions."""
        return len(self.action)

    @property
    def games(self) -> int:
        """G, the number of games."""
        return len(self.returns)


def _check_shapes(shard: Shard) -> None:
    rows = shard.rows
    _require(shard.obs.dtype in (np.uint8, np.float32), f"obs is {shard.obs.dtype}, not uint8 or float32")
    _require(shard.obs.ndim == 2 and len(shard.obs) == rows, f"obs is {shard.obs.shape} for {rows} rows")
    _require(shard.mask.dtype == np.bool_, f"mask is {shard.mask.dtype}, not bool")
    _require(shard.mask.ndim == 2 and len(shard.mask) == rows, f"mask is {shard.mask.shape} for {rows} rows")
    for name, kind in ROW_TYPES.items():
        array = getattr(shard, name)
        _require(array.shape == (rows,), f"{name} is {array.shape} for {rows} rows")
        _require(array.dtype == kind, f"{name} is {array.dtype}, not {np.dtype(kind)}")
    for name, kind in GAME_TYPES.items():
        _require(getattr(shard, name).dtype == kind, f"{name} is not {np.dtype(kind)}")
    _require(shard.returns.ndim == 2, f"returns is {shard.returns.shape}, not [games, seats]")
    offsets = shard.history_offsets
    _require(offsets.shape == (shard.games + 1,), f"history_offsets is {offsets.shape}, {shard.games} games")


def _check_values(shard: Shard) -> None:
    seats, offsets = shard.returns.shape[1], shard.history_offsets
    grows = bool((np.diff(offsets) >= 0).all())
    _require(grows and offsets[0] == 0 and offsets[-1] == len(shard.history), "history_offsets miss the history")
    for name, count in (("game", shard.games), ("seat", seats), ("action", shard.mask.shape[1])):
        array = getattr(shard, name)
        _require(bool(((array >= 0) & (array < count)).all()), f"a {name} is outside 0 … {count - 1}")
    legal = np.take_along_axis(shard.mask, shard.action[:, None].astype(np.int64), axis=1)
    _require(bool(legal.all()), "an action is not legal under its mask")
    for name in ("log_prob", "value", "reward", "bootstrap", "returns"):
        _require(bool(np.isfinite(getattr(shard, name)).all()), f"{name} holds a NaN or an infinity")


def _require(condition: bool, complaint: str) -> None:  # noqa: FBT001
    if not condition:
        raise BadShard(f"No shard: {complaint}.", hint="Fix the code that collected these rows.")
