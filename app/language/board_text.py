"""Two-player board games as text: connect four and tic-tac-toe."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from flyball.app.core import RANDOM
from flyball.app.games.board_table import BoardRules, BoardTable
from flyball.app.games.connect_four import CONNECT_FOUR
from flyball.app.games.table import FINISHED, UnknownGame
from flyball.app.games.tic_tac_toe import TIC_TAC_TOE
from flyball.app.language.text_game import IllegalAnswer, OneOf, TextSpec, TextTable, TextTurn, draw_answer, parts_of

VERSION = 1
"""Version of the text; raised when the same moves could give other prompts."""

_STONES = np.array([" x", " o", " ."])  # of the seat to move, of the other seat, empty


@dataclass(frozen=True, slots=True)
class BoardWords:
    """A board game's text."""

    rules: BoardRules
    preamble: str
    question: str


BOARDS = {
    "connect_four": BoardWords(
        CONNECT_FOUR,
        # The lowest row is first, because a model reads from left to right, and so reads a cell after those below it.
        "Connect four: drop a stone into one of the columns 1 to 7, and get four in a row. x is yours, o theirs. "
        "The lowest row is first.\n",
        "Your column:",
    ),
    "tic_tac_toe": BoardWords(
        TIC_TAC_TOE,
        "Tic-tac-toe: mark one of the cells 1 to 9, and get three in a row. x is yours, o theirs.\n",
        "Your cell:",
    ),
}
"""Board games with a text, by name."""


class BoardText(TextTable):
    """N board games at once as text. An answer is the number of an action, counted from 1."""

    def __init__(self, words: BoardWords, slots: int, max_moves: int | None = None) -> None:
        self._table, self._words = BoardTable(words.rules, slots, max_moves), words
        board = self._table.spec
        self.spec = TextSpec(
            board.players,
            f"text-{VERSION}:{board.rules_version}",
            words.preamble,
            stop="\n",
            bots=board.bots,
            decisive=board.decisive,
        )
        self._texts = tuple(f" {action + 1}\n" for action in range(board.actions))
        self._answers: dict[bytes, OneOf] = {}
        self._submitted: dict[int, int] = {}
        self._histories: list[list[tuple[int, str]]] = [[] for _ in range(slots)]

    def reset(self, slots: Sequence[int], seeds: Sequence[int], openings: Sequence[int]) -> None:
        """See ``TextTable.reset``."""
        self._table.reset(np.array(slots, dtype=np.int64), seeds)
        for slot, seed, opening in zip(slots, seeds, openings, strict=True):
            self._histories[slot] = []
            self._submitted.pop(slot, None)
            rng = Random(seed)
            for _ in range(opening):
                seat = int(self._table.seats()[slot])
                if seat == FINISHED:
                    break
                self.submit(slot, seat, draw_answer(self._legal(slot), rng))
                self.advance()

    def pending(self) -> list[TextTurn]:
        """See ``TextTable.pending``."""
        seats = self._table.seats()
        slots = [slot for slot in np.flatnonzero(seats != FINISHED).tolist() if slot not in self._submitted]
        if not slots:
            return []
        boards, masks = self._table.observe(np.array(slots))
        return [
            TextTurn(slot, int(seats[slot]), self._prompt(board), self._one_of(mask))
            for slot, board, mask in zip(slots, boards, masks, strict=True)
        ]

    def submit(self, slot: int, seat: int, answer: str) -> None:
        """See ``TextTable.submit``."""
        waits = int(self._table.seats()[slot]) == seat != FINISHED and slot not in self._submitted
        if not waits or parts_of(self._legal(slot), answer) is None:
            raise IllegalAnswer(answer, slot, seat)
        self._submitted[slot] = self._texts.index(answer)
        self._histories[slot].append((seat, answer))

    def advance(self) -> None:
        """See ``TextTable.advance``."""
        slots, actions = np.array([*self._submitted], dtype=np.int64), np.array([*self._submitted.values()], np.int32)
        self._submitted.clear()
        if len(slots):
            self._table.step(slots, actions)

    def bot(self, name: str, turn: TextTurn, rng: Random) -> str:
        """See ``TextTable.bot``."""
        if name == RANDOM:
            return draw_answer(turn.answers, rng)
        heuristic = self._table.spec.levels.get(name)
        if heuristic is None:
            raise UnknownGame(
                f"{self.spec.rules_version} has no bot {name!r}.", hint=f"Its bots: {', '.join(self.spec.bots)}."
            )
        board, mask = self._table.observe(np.array([turn.slot]))
        weights = np.where(mask, heuristic(board, mask), -np.inf)[0]
        shares = np.exp(weights - weights.max())
        return rng.choices(self._texts, weights=shares.tolist())[0]

    def running(self) -> NDArray[np.bool_]:
        """See ``TextTable.running``."""
        return np.asarray(self._table.seats() != FINISHED)

    def scores(self) -> NDArray[np.float32]:
        """See ``TextTable.scores``. A win is 1, a draw 0, a loss -1."""
        return self._table.returns()

    def returns(self) -> NDArray[np.float32]:
        """See ``TextTable.returns``."""
        return self._table.returns()

    def truncated(self) -> NDArray[np.bool_]:
        """See ``TextTable.truncated``."""
        return self._table.truncated()

    def history(self, slot: int) -> list[tuple[int, str]]:
        """See ``TextTable.history``."""
        return list(self._histories[slot])

    def _legal(self, slot: int) -> OneOf:
        return self._one_of(self._table.observe(np.array([slot]))[1][0])

    def _one_of(self, mask: NDArray[np.bool_]) -> OneOf:
        """Return the answers of a mask; equal masks give the same object."""
        key = mask.tobytes()
        if key not in self._answers:
            self._answers[key] = OneOf(tuple(self._texts[action] for action in np.flatnonzero(mask)))
        return self._answers[key]

    def _prompt(self, board: NDArray[np.uint8]) -> str:
        planes = self._table.spec.planes
        assert planes is not None
        rows = board.reshape(planes).argmax(axis=0)
        lines = ["".join(_STONES[row]) for row in rows]
        return "\n".join([self.spec.preamble + lines[0], *lines[1:], self._words.question])
