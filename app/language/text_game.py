"""Interface of text games: seats get prompts, and answer with text.

A table plays many games at once. An answer is a sequence of parts, each one of the options that the parts before it
leave. Connect four has answers of one part; in Diplomacy, each unit's order is a part. So legal answers need no list of
all combinations, and a rule such as "no unit twice" is a matter of the options.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flyball.app.core import FlyballError


class IllegalAnswer(FlyballError):
    """An answer that the rules do not allow."""

    def __init__(self, answer: str, slot: int, seat: int) -> None:
        super().__init__(
            f"Seat {seat} of the game in slot {slot} may not answer {answer!r:.100}.",
            hint="Answer with the parts that the turn's options allow, only for pending seats, and once.",
        )


class Answers(Protocol):
    """The legal answers of a turn."""

    def options(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the legal next parts after ``parts``.

        The options are empty if ``parts`` are a complete answer. No option is a prefix of another one after the same
        parts. The last part, and no other, ends with the game's ``stop``.
        """


@dataclass(frozen=True, slots=True)
class OneOf(Answers):
    """Answers of one part."""

    texts: tuple[str, ...]

    def options(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """See ``Answers.options``."""
        return () if parts else self.texts


@dataclass(frozen=True, slots=True)
class TextTurn:
    """A seat that has to answer."""

    slot: int
    seat: int
    prompt: str  # begins with the game's preamble; holds what the seat may know
    answers: Answers


@dataclass(frozen=True, slots=True)
class TextSpec:
    """Description of a text game."""

    players: int  # P
    rules_version: str  # names the rules, their text and their implementation
    preamble: str  # beginning of every prompt, whose keys and values a generator computes once
    stop: str  # end of every answer
    bots: tuple[str, ...]  # names of the built-in players, 'random' first
    seats: tuple[str, ...] = ()  # names of the seats, for instance the powers of Diplomacy; empty: they have none
    decisive: bool = False  # see ``TableSpec.decisive``


class TextTable(Protocol):
    """N games at once, in slots 0 … N - 1.

    Every slot is empty until it is reset. The table itself plays chance, from the slot's seed, and answers for seats
    that have only one legal answer. The same seeds and answers give the same games and prompts.
    """

    spec: TextSpec

    def reset(self, slots: Sequence[int], seeds: Sequence[int], openings: Sequence[int]) -> None:
        """Begin a game in each of ``slots`` with a number of random first phases, all drawn from its seed."""

    def pending(self) -> list[TextTurn]:
        """Return a turn for each seat that has to answer. Slots without a running game have no turns."""

    def submit(self, slot: int, seat: int, answer: str) -> None:
        """Take a pending seat's answer. Raises ``IllegalAnswer``."""

    def advance(self) -> None:
        """Play on in each slot whose pending seats have all submitted. The other slots wait."""

    def bot(self, name: str, turn: TextTurn, rng: Random) -> str:
        """Return the answer of a built-in player, which sees the slot's game."""

    def running(self) -> NDArray[np.bool_]:
        """Return which slots [N] have a game that is not over."""

    def scores(self) -> NDArray[np.float32]:
        """Return scores [N, P] in the game's own points. Games that are truncated or not over have scores, too."""

    def returns(self) -> NDArray[np.float32]:
        """Return outcomes [N, P] in [-1, 1], which sum to 0: by scores if truncated, 0 while a game runs."""

    def truncated(self) -> NDArray[np.bool_]:
        """Return which games [N] were cut off at a limit."""

    def history(self, slot: int) -> list[tuple[int, str]]:
        """Return a game's seats and answers so far, phase after phase, without those that the table gave itself."""


def ranks(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the final rank of each seat [..., P]. The best rank is 1. Equal scores share the better rank."""
    better = scores[..., None, :] > scores[..., :, None]
    return np.asarray(1 + better.sum(axis=-1), dtype=np.int64)


def parts_of(answers: Answers, text: str) -> tuple[str, ...] | None:
    """Return the parts of an answer, ``None`` if it is not legal."""
    parts: tuple[str, ...] = ()
    while options := answers.options(parts):
        part = next((option for option in options if text.startswith(option)), None)
        if part is None:
            return None
        parts, text = (*parts, part), text[len(part) :]
    return None if text else parts


def draw_answer(answers: Answers, rng: Random) -> str:
    """Return an answer, each part drawn uniformly among its options."""
    parts: tuple[str, ...] = ()
    while options := answers.options(parts):
        parts = (*parts, rng.choice(options))
    return "".join(parts)
