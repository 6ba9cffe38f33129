"""Shards of language models' answers, for training and for inspection.

A shard is one safetensors file whose header holds its metadata as a note, like the shards of networks
(``flyball.app.store``).
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors import SafetensorError

from flyball.app.core import FlyballError, ShardKey
from flyball.app.store import BlobStore, DamagedBlob, ShardMeta, note_of, with_note

TYPES: dict[str, type[np.generic]] = {
    "ids": np.int32,
    "offsets": np.int64,
    "loss_mask": np.bool_,
    "log_prob": np.float32,
    "allowed": np.int32,
    "allowed_counts": np.int32,
    "group": np.int32,
    "reward": np.float32,
    "seat": np.int8,
    "game": np.int32,
    "step": np.int32,
    "legal": np.bool_,
    "parsed": np.bool_,
    "prompt_length": np.int32,
    "truncated": np.bool_,
    "returns": np.float32,
    "scores": np.float32,
    "start": np.int32,
    "said": np.uint8,
    "said_offsets": np.int64,
    "said_seat": np.int8,
    "said_game": np.int32,
}
"""Type of each array."""


class BadTokenShard(FlyballError):
    """Arrays that do not form a shard of answers."""


class TokenShardMeta(ShardMeta):
    """Origin of a shard of answers."""

    base: str
    constrained: bool


@dataclass(frozen=True, slots=True, eq=False)
class TokenShard:
    """R answers of language models in G games with P seats.

    All prompts and answers together have T tokens. L tokens were allowed, and S answers were played.

    Attributes:
        ids: [T] tokens of each prompt and its answer, row after row.
        offsets: [R + 1] where each row's tokens begin.
        loss_mask: [T] the tokens to learn from: those of an answer that the model had a choice about.
        log_prob: [T] log-probabilities of an answer's tokens among the allowed ones, at the temperature; else 0.
        allowed: [L] tokens that were allowed, place after place.
        allowed_counts: [T] number of allowed tokens; 0 if any token is allowed, and in prompts.
        group: [R] episodes from the same start in the same seat have the same number.
        reward: [R] of the row's episode: a seat's game.
        seat: [R] the seat that answered.
        game: [R] the game, 0 … G - 1.
        step: [R] number of the phase in its game.
        legal: [R] the answer was legal, and was played; otherwise a random one was played instead.
        parsed: [R] the answer ended with the game's stop.
        prompt_length: [R] tokens of the prompt.
        truncated: [G] games that were cut off.
        returns: [G, P] outcomes.
        scores: [G, P] in the game's points.
        start: [G] number of the start; games with the same one were begun from the same seed.
        said: all answers that were played, by any agent, in UTF-8.
        said_offsets: [S + 1] where each played answer begins.
        said_seat: [S] the seat of each played answer.
        said_game: [S] the game of each played answer.
        meta: origin of the shard.

    Raises ``BadTokenShard`` when shapes, types or values do not agree.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    loss_mask: NDArray[np.bool_]
    log_prob: NDArray[np.float32]
    allowed: NDArray[np.int32]
    allowed_counts: NDArray[np.int32]
    group: NDArray[np.int32]
    reward: NDArray[np.float32]
    seat: NDArray[np.int8]
    game: NDArray[np.int32]
    step: NDArray[np.int32]
    legal: NDArray[np.bool_]
    parsed: NDArray[np.bool_]
    prompt_length: NDArray[np.int32]
    truncated: NDArray[np.bool_]
    returns: NDArray[np.float32]
    scores: NDArray[np.float32]
    start: NDArray[np.int32]
    said: NDArray[np.uint8]
    said_offsets: NDArray[np.int64]
    said_seat: NDArray[np.int8]
    said_game: NDArray[np.int32]
    meta: TokenShardMeta

    def __post_init__(self) -> None:
        for name, kind in TYPES.items():
            _require(getattr(self, name).dtype == kind, f"{name} is {getattr(self, name).dtype}, not {np.dtype(kind)}")
        tokens, rows, answers = len(self.ids), len(self.group), len(self.said_seat)
        for name in ("loss_mask", "log_prob", "allowed_counts"):
            _require(getattr(self, name).shape == (tokens,), f"{name} has not a value for each of {tokens} tokens")
        for name in ("reward", "seat", "game", "step", "legal", "parsed", "prompt_length"):
            _require(getattr(self, name).shape == (rows,), f"{name} has not a value for each of {rows} rows")
        _require(self.returns.ndim == 2 and self.returns.shape == self.scores.shape, "returns and scores disagree")
        for name in ("truncated", "start"):
            _require(getattr(self, name).shape == (self.games,), f"{name} has not a value for each game")
        _require(_ascending(self.offsets, rows, tokens), "offsets do not divide the tokens")
        _require(_ascending(self.said_offsets, answers, len(self.said)), "said_offsets do not divide what was said")
        _require(self.said_game.shape == (answers,), "said_game has not a value for each answer")
        _require(bool((self.allowed_counts >= 0).all()), "allowed_counts are negative")
        _require(int(self.allowed_counts.sum()) == len(self.allowed), "allowed_counts do not divide the allowed tokens")
        _require(bool((np.diff(self.offsets) > self.prompt_length).all()), "a row has no answer")
        _require(bool((self.prompt_length > 0).all()), "a row has no prompt")
        seats = self.returns.shape[1]
        for name, array, count in (
            ("game", self.game, self.games),
            ("said_game", self.said_game, self.games),
            ("seat", self.seat, seats),
            ("said_seat", self.said_seat, seats),
        ):
            _require(bool(((array >= 0) & (array < count)).all()), f"a {name} is outside 0 … {count - 1}")
        for name in ("log_prob", "reward", "returns", "scores"):
            _require(bool(np.isfinite(getattr(self, name)).all()), f"{name} holds a NaN or an infinity")

    @property
    def rows(self) -> int:
        """R, the number of answers."""
        return len(self.group)

    @property
    def games(self) -> int:
        """G, the number of games."""
        return len(self.returns)

    def played_answers(self, game: int) -> list[tuple[int, str]]:
        """Return a game's seats and played answers, in order."""
        return [
            (int(self.said_seat[k]), bytes(self.said[self.said_offsets[k] : self.said_offsets[k + 1]]).decode())
            for k in np.flatnonzero(self.said_game == game).tolist()
        ]


def _ascending(offsets: NDArray[np.int64], count: int, end: int) -> bool:
    return (
        offsets.shape == (count + 1,)
        and int(offsets[0]) == 0
        and int(offsets[-1]) == end
        and bool((np.diff(offsets) >= 0).all())
    )


def _require(condition: bool, complaint: str) -> None:  # noqa: FBT001
    if not condition:
        raise BadTokenShard(f"No shard of answers: {complaint}.", hint="Fix the code that collected these answers.")


def put_token_shard(store: BlobStore, shard: TokenShard) -> ShardKey:
    """Store a shard and return its key. The same shard always has the same key."""
    arrays: dict[str, NDArray[Any]] = {name: np.ascontiguousarray(getattr(shard, name)) for name in TYPES}
    return ShardKey(store.put(with_note(safetensors.numpy.save(arrays), shard.meta.model_dump_json())))


def get_token_shard(store: BlobStore, key: ShardKey) -> TokenShard:
    """Return a shard. Raises ``MissingBlob``, or ``DamagedBlob`` if the blob has changed or is no shard of answers."""
    data = store.get(key)
    try:
        meta = TokenShardMeta.model_validate_json(note_of(data))
        return TokenShard(**safetensors.numpy.load(data), meta=meta)
    except (SafetensorError, ValidationError, KeyError, TypeError, BadTokenShard) as error:
        raise DamagedBlob(
            f"Blob {key} is intact but is no shard of answers ({error}).",
            hint="Is it a shard of a network's games? Leave it out and play fresh games.",
        ) from error


assert {field.name for field in fields(TokenShard)} == TYPES.keys() | {"meta"}
