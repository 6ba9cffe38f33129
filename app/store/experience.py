"""Experience as lines of JSON, for other programs.

A line is one decision; see ``Experience``. A file takes hundreds of times the space of a shard. Reading a file
makes a shard, because training reads nothing else.
"""

import json
from collections.abc import Iterable, Iterator
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from flyball.app.config import FrozenModel, GameConfig
from flyball.app.core import UnusableFile, reading
from flyball.app.core.legal import Legal, compact, join
from flyball.app.store.shard import ROW_TYPES, BadShard, Shard, ShardMeta

if TYPE_CHECKING:  # the rules are costly to import, and most users of the store do not need them
    from flyball.app.games import Observations, TableSpec


class BadExperience(UnusableFile):
    """An invalid line, or lines that do not form whole episodes."""

    def __init__(self, name: str, line: int, complaint: str) -> None:
        super().__init__(
            f"{name}, line {line}: {complaint}.",
            hint="A line is a decision: obs, mask, action, reward, value, log_prob, done, game_id, step_id, seat.",
        )


class Experience(FrozenModel):
    """One decision of one seat. An episode is a seat's decisions in a game, in the order of ``step_id``."""

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
    bootstrap: float = Field(default=0.0, description="the critic's value of the state after a truncated decision")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.action >= len(self.mask) or not self.mask[self.action]:
            raise ValueError(f"action {self.action} is not legal under the mask")
        if self.done and self.truncated:
            raise ValueError("a decision is done or truncated, not both")
        return self


def experience_lines(shard: Shard, first_game: int = 0) -> Iterator[str]:
    """Write a shard's rows as lines of JSON, in order.

    Numbers are not rounded.

    ``first_game`` is the id of the shard's first game, so that one file can hold several shards.
    """
    for k in range(shard.rows):
        row: dict[str, Any] = {
            "obs": shard.obs[k].tolist(),
            "mask": np.asarray(shard.mask[k : k + 1])[0].astype(np.int8).tolist(),
            "action": int(shard.action[k]),
            "reward": float(shard.reward[k]),
            "value": float(shard.value[k]),
            "log_prob": float(shard.log_prob[k]),
            "done": bool(shard.done[k]),
            "game_id": first_game + int(shard.game[k]),
            "step_id": int(shard.step[k]),
            "seat": int(shard.seat[k]),
        }
        if shard.truncated[k]:
            row |= {"truncated": True, "bootstrap": float(shard.bootstrap[k])}
        yield json.dumps(row, separators=(",", ":"))


class _Row(NamedTuple):
    """A parsed line. ``obs`` and ``mask`` are arrays, which take a tenth of the memory of lists."""

    number: int
    decision: Experience
    obs: "Observations"
    mask: Legal  # of one row


def load_experience(path: Path, config: GameConfig) -> Shard:
    """Read an experience file of a configuration's game as a shard.

    The players are unknown, so the shard's model is the hash of the file.
    Raises ``BadExperience``, or ``UnusableFile`` when the file cannot be read.
    """
    from flyball.app.games import open_table

    spec = open_table(config, 0).spec
    with reading(path), path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
        file.seek(0)
        meta = ShardMeta(
            config_key=config.key,
            rules_version=spec.rules_version,
            model=digest,
            opponents=(),
            seed=0,
            worker=str(path),
            temperature=1.0,
        )
        return read_experience(file, str(path), meta, spec)


def read_experience(lines: Iterable[str | bytes], name: str, meta: ShardMeta, game: "TableSpec") -> Shard:
    """Make a shard from lines of JSON, skipping empty lines.

    Games are renumbered in the order of their ids, and their outcomes are the sums of the rewards. The shard has no
    histories, so it serves for training but not for the parity check.

    Args:
        lines: the content of the file.
        name: the file's name, for messages.
        meta: origin of the experience.
        game: the game that was played.

    Raises ``BadExperience`` with the line and the field.
    """
    rows = [_row(name, number, line, game) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows:
        raise BadExperience(name, 1, "there is no experience")
    rows.sort(key=lambda row: (row.decision.game_id, row.decision.seat, row.decision.step_id))
    _check_episodes(name, rows)
    return _shard(name, rows, meta, game)


def steps_left_out(shard: Shard) -> int:
    """Return how many steps are missing from a shard's games.

    The steps from the shard's first step to each game's last are counted. In a file of every seat's decisions, missing
    steps are lost ones. Reading refuses an episode without its end.
    """
    first = int(shard.step.min())
    lengths = np.zeros(shard.games, dtype=np.int64)
    np.maximum.at(lengths, shard.game, shard.step - first + 1)
    return int(lengths.sum()) - len(np.unique(np.stack((shard.game, shard.step)), axis=1).T)


def _parse_line(name: str, number: int, line: str | bytes) -> Experience:
    try:
        return Experience.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"[{part}]" if isinstance(part, int) else str(part) for part in first["loc"])
        complaint = first["msg"].removeprefix("Value error, ")
        raise BadExperience(name, number, f"field {where}: {complaint}" if where else complaint) from error


def _row(name: str, number: int, line: str | bytes, game: "TableSpec") -> _Row:
    decision = _parse_line(name, number, line)
    if decision.seat >= game.players:
        raise BadExperience(name, number, f"field seat: {decision.seat}, but there are {game.players} players")
    for field, size in (("obs", game.observation_size), ("mask", game.actions)):
        count = len(getattr(decision, field))
        if count != size:
            raise BadExperience(name, number, f"field {field}: {count} numbers, and {game.rules_version} has {size}")
    obs: Any = np.array(decision.obs, dtype=np.float64).astype(game.observation_type)
    if game.observation_type == np.uint8 and not np.array_equal(obs, decision.obs):
        raise BadExperience(name, number, f"field obs: {game.rules_version} has whole numbers from 0 to 255")
    mask = compact(np.array([decision.mask], dtype=np.bool_))
    return _Row(number, decision.model_copy(update={"obs": [], "mask": []}), obs, mask)


def _check_episodes(name: str, rows: list[_Row]) -> None:
    """Check that each episode of rows sorted by game, seat and step ends exactly once. Raises ``BadExperience``."""
    for (number, row, _, _), following in zip(rows, [*rows[1:], None], strict=True):
        after = following and following.decision
        goes_on = after is not None and (row.game_id, row.seat) == (after.game_id, after.seat)
        episode = f"seat {row.seat} in game {row.game_id}"
        if goes_on and after is not None and row.step_id == after.step_id:
            raise BadExperience(name, number, f"field step_id: {episode} has step {row.step_id} twice")
        if goes_on == (row.done or row.truncated):
            wrong = "ends here but goes on later" if goes_on else "never ends: its last decision is not done"
            raise BadExperience(name, number, f"field done: {episode} {wrong}")


def _shard(name: str, rows: list[_Row], meta: ShardMeta, game: "TableSpec") -> Shard:
    columns: dict[str, NDArray[Any]] = {
        field: np.array([getattr(row.decision, field) for row in rows], dtype=dtype)
        for field, dtype in ROW_TYPES.items()
        if field not in ("game", "step")  # called game_id and step_id in a line
    }
    ids, numbers = np.unique([row.decision.game_id for row in rows], return_inverse=True)
    returns = np.zeros((len(ids), game.players), dtype=np.float32)
    np.add.at(returns, (numbers, columns["seat"]), columns["reward"])
    obs: Any = np.stack([row.obs for row in rows])
    try:
        return Shard(
            obs=obs,
            mask=join([row.mask for row in rows]),
            game=numbers.astype(np.int32),
            step=np.array([row.decision.step_id for row in rows], dtype=np.int32),
            returns=returns,
            history=np.zeros(0, dtype=np.int32),
            history_offsets=np.zeros(len(ids) + 1, dtype=np.int64),
            meta=meta,
            **columns,
        )
    except BadShard as error:
        raise BadExperience(name, 1, str(error)) from error
