"""Experience as lines of JSON, for programs that are not ours: seed 004's schema, and the legal mask.

A line is one decision; see ``Experience``. It takes fifty times the room and the time of a shard, which stays what is
trained on: a file that is read becomes one.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from app.config import Settings
from app.core import FlyballError
from app.store.shard import BadShard, Shard, ShardMeta


class BadExperience(FlyballError):
    """A line that is no experience, or lines that do not make whole episodes."""

    def __init__(self, name: str, line: int, complaint: str) -> None:
        super().__init__(
            f"{name}, line {line}: {complaint}.",
            hint="A line is a decision: obs, mask, action, reward, value, log_prob, done, game_id, step_id, seat.",
        )


class Experience(Settings):
    """One decision of one seat. An episode is what a seat did in a game, in the order of ``step_id``."""

    obs: list[float] = Field(min_length=1)
    mask: list[Literal[0, 1]] = Field(min_length=1, description="legal actions")
    action: int = Field(ge=0)
    reward: float = Field(description="until the seat's next decision, or the end")
    value: float
    log_prob: float = Field(le=0)
    done: bool = Field(description="the game ended before the seat's next decision")
    game_id: int = Field(ge=0)
    step_id: int = Field(ge=0)
    seat: int = Field(ge=0)
    truncated: bool = Field(default=False, description="the game was cut off here instead")
    bootstrap: float = Field(default=0.0, description="the critic's value of what a truncated decision leads to")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.action >= len(self.mask) or not self.mask[self.action]:
            raise ValueError(f"action {self.action} is not legal under the mask")
        if self.done and self.truncated:
            raise ValueError("a decision is done or truncated, not both")
        return self


def experience_lines(shard: Shard) -> Iterator[str]:
    """Write a shard's rows as lines of JSON, in the shard's order; numbers lose nothing."""
    for k in range(shard.rows):
        row: dict[str, Any] = {
            "obs": shard.obs[k].tolist(),
            "mask": shard.mask[k].astype(np.int8).tolist(),
            "action": int(shard.action[k]),
            "reward": float(shard.reward[k]),
            "value": float(shard.value[k]),
            "log_prob": float(shard.log_prob[k]),
            "done": bool(shard.done[k]),
            "game_id": int(shard.game[k]),
            "step_id": int(shard.step[k]),
            "seat": int(shard.seat[k]),
        }
        if shard.truncated[k]:
            row |= {"truncated": True, "bootstrap": float(shard.bootstrap[k])}
        yield json.dumps(row, separators=(",", ":"))


def read_experience(
    lines: Iterable[str | bytes], name: str, meta: ShardMeta, players: int, kind: type[np.uint8] | type[np.float32]
) -> Shard:
    """Make a shard of lines of JSON; empty ones are passed over.

    Games are numbered anew, in the order of their ids, and their outcomes are the sums of the rewards. They have no
    histories, so they can be trained on, but not be played again for the parity check.

    Args:
        lines: of the file.
        name: of the file, for messages.
        meta: where it comes from.
        players: of the game.
        kind: of the observations.

    Raises ``BadExperience`` with the line and the field.
    """
    numbers, rows = [], []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            rows.append(_parsed(name, number, line))
            numbers.append(number)
            _check_alike(name, number, rows[0], rows[-1], players)
    if not rows:
        raise BadExperience(name, 1, "there is no experience")
    order = _check_episodes(name, numbers, rows)
    return _shard(name, [rows[k] for k in order], meta, players, kind)


def _parsed(name: str, number: int, line: str | bytes) -> Experience:
    try:
        return Experience.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"[{part}]" if isinstance(part, int) else str(part) for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        raise BadExperience(name, number, f"field {where}: {said}" if where else said) from error


def _check_alike(name: str, number: int, first: Experience, row: Experience, players: int) -> None:
    if row.seat >= players:
        raise BadExperience(name, number, f"field seat: {row.seat}, but there are {players} players")
    for field in ("obs", "mask"):
        found, expected = len(getattr(row, field)), len(getattr(first, field))
        if found != expected:
            raise BadExperience(name, number, f"field {field}: {found} numbers, the first line has {expected}")


def _check_episodes(name: str, numbers: list[int], rows: list[Experience]) -> list[int]:
    """Return the rows' order by game, seat and step, having checked that every episode ends, and ends once."""
    order = sorted(range(len(rows)), key=lambda k: (rows[k].game_id, rows[k].seat, rows[k].step_id))
    for k, following in zip(order, [*order[1:], None], strict=True):
        row, after = rows[k], rows[following] if following is not None else None
        goes_on = after is not None and (row.game_id, row.seat) == (after.game_id, after.seat)
        episode = f"seat {row.seat} in game {row.game_id}"
        if goes_on and after is not None and row.step_id == after.step_id:
            raise BadExperience(name, numbers[k], f"field step_id: {episode} has step {row.step_id} twice")
        if goes_on == (row.done or row.truncated):
            said = "ends here but goes on later" if goes_on else "never ends: its last decision is not done"
            raise BadExperience(name, numbers[k], f"field done: {episode} {said}")
    return order


def _shard(
    name: str, rows: list[Experience], meta: ShardMeta, players: int, kind: type[np.uint8] | type[np.float32]
) -> Shard:
    columns: dict[str, NDArray[Any]] = {
        field: np.array([getattr(row, field) for row in rows], dtype=dtype)
        for field, dtype in (
            ("action", np.int32),
            ("log_prob", np.float32),
            ("value", np.float32),
            ("reward", np.float32),
            ("done", np.bool_),
            ("truncated", np.bool_),
            ("bootstrap", np.float32),
            ("seat", np.int8),
        )
    }
    obs: Any = np.array([row.obs for row in rows], dtype=kind)
    ids, game = np.unique([row.game_id for row in rows], return_inverse=True)
    returns = np.zeros((len(ids), players), dtype=np.float32)
    np.add.at(returns, (game, columns["seat"]), columns["reward"])
    try:
        return Shard(
            obs=obs,
            mask=np.array([row.mask for row in rows], dtype=np.bool_),
            game=game.astype(np.int32),
            step=np.array([row.step_id for row in rows], dtype=np.int32),
            returns=returns,
            history=np.zeros(0, dtype=np.int32),
            history_offsets=np.zeros(len(ids) + 1, dtype=np.int64),
            meta=meta,
            **columns,
        )
    except BadShard as error:
        raise BadExperience(name, 1, str(error)) from error
