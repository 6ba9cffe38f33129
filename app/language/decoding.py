"""Decoding of answers, token by token: all generators draw among the same tokens by the same seeds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flyball.app.language.generator import Completion, PromptRequest, Sampling
from flyball.app.language.trie import Cursor, Tries
from flyball.app.play.rng import draw_points

Decoder = Callable[[Iterable[int]], str]
"""Turns token ids into a text."""


@dataclass(slots=True, eq=False)
class AnswerRow:
    """An answer that is being decoded."""

    prompt: list[int]
    request: PromptRequest
    tries: Tries
    cursor: Cursor | None = field(init=False, default=None)
    ids: list[int] = field(init=False, default_factory=list)
    log_probs: list[float] = field(init=False, default_factory=list)
    allowed: list[tuple[int, ...]] = field(init=False, default_factory=list)
    finish: Any = field(init=False, default=None)
    text: str = field(init=False, default="")
    read: int = field(init=False, default=0)  # tokens of the answer that the model has read

    def __post_init__(self) -> None:
        if self.request.answers is not None:
            self.cursor = Cursor(self.request.answers, self.tries)
            self._take_without_choice(self.cursor)

    @property
    def legal(self) -> tuple[int, ...]:
        """The allowed next tokens; empty if any token is allowed."""
        return () if self.cursor is None else self.cursor.allowed

    def take(self, token: int, log_prob: float, decode: Decoder, sampling: Sampling) -> None:
        """Append a drawn token, and those after it that leave no choice.

        A free answer ends at ``stop``, or is cut off at ``most_tokens``. A constrained answer is never cut off, because
        a part of it would not be legal.
        """
        self._append(token, log_prob)
        if self.cursor is not None:
            self._take_without_choice(self.cursor)
            return
        self.text = decode(self.ids)
        if sampling.stop in self.text:
            self.text = self.text[: self.text.index(sampling.stop) + len(sampling.stop)]
            self.finish = "stop"
        elif len(self.ids) >= sampling.most_tokens:
            self.finish = "length"

    def _append(self, token: int, log_prob: float) -> None:
        self.allowed.append(self.legal)
        self.ids.append(token)
        self.log_probs.append(log_prob)
        if self.cursor is not None:
            self.cursor.take(token)

    def _take_without_choice(self, cursor: Cursor) -> None:
        """Append tokens while only one is allowed, with log-probabilities of 0."""
        while len(cursor.allowed) == 1:
            self._append(cursor.allowed[0], 0.0)
        if not cursor.allowed:
            self.text, self.finish = cursor.text, "stop"

    def unread(self) -> list[int]:
        """Return the answer's tokens that were not returned before."""
        tokens, self.read = self.ids[self.read :], len(self.ids)
        return tokens

    def completion(self) -> Completion:
        """Return the answer."""
        return Completion(
            self.text, tuple(self.prompt), tuple(self.ids), tuple(self.log_probs), tuple(self.allowed), self.finish
        )


def only_legal(logits: Tensor, rows: Sequence[AnswerRow]) -> Tensor:
    """Return ``logits`` [B, V] with -inf for each row's illegal tokens."""
    barred = torch.zeros(logits.shape, dtype=torch.bool)
    for index, row in enumerate(rows):
        if legal := row.legal:
            barred[index] = True
            barred[index, list(legal)] = False
    return logits.masked_fill(barred, float("-inf"))


def draw(logits: Tensor, rows: Sequence[AnswerRow], sampling: Sampling) -> list[tuple[int, float]]:
    """Return a drawn column and its log-probability for each row.

    ``logits`` are [B, V]. At temperature 0, the most probable column is taken. Columns with -inf, and their number,
    make no difference: all tokens may be given, or only the legal ones in ascending order.
    """
    scores = (logits.double() / (sampling.temperature or 1.0)).log_softmax(-1)
    if sampling.temperature:
        seeds = np.array([row.request.seed for row in rows], dtype=np.uint64)
        points = draw_points(seeds, np.array([len(row.ids) for row in rows]))
        sums = scores.exp().cumsum(-1)
        target = torch.from_numpy(points)[:, None] * sums[:, -1:]
        tokens = torch.searchsorted(sums, target, right=True)[:, 0].clamp(max=logits.shape[1] - 1)
    else:
        tokens = scores.argmax(-1)
    chosen = scores.gather(1, tokens[:, None])[:, 0]
    return list(zip(tokens.tolist(), chosen.tolist(), strict=True))
