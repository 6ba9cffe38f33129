"""Diplomacy as a text game. All powers order at once, and each power orders one unit after the other."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball.app.games.diplomacy.bots import BOTS
from flyball.app.games.diplomacy.game import Ending, Game
from flyball.app.games.diplomacy.legal import in_order, next_orders
from flyball.app.games.diplomacy.maps import Map
from flyball.app.games.diplomacy.orders import Order, parse_order, write_order
from flyball.app.games.diplomacy.position import FIRST_YEAR, Position
from flyball.app.games.diplomacy.scoring import LEAST_PLACED, material_scores, placed_scores, shares, zero_sum
from flyball.app.games.diplomacy.small import SMALL
from flyball.app.games.diplomacy.standard import STANDARD
from flyball.app.games.diplomacy.text import CLOSE, preamble, prompt
from flyball.app.games.table import UnknownGame
from flyball.app.language.text_game import Answers, IllegalAnswer, TextSpec, TextTable, TextTurn, draw_answer, parts_of

VERSION = 1
"""Version of rules and text; raised when the same answers could give other prompts or results."""


MATERIAL, PLACED = "material", "placed"
"""Scorings: ``material_scores`` and ``placed_scores``."""


@dataclass(frozen=True, slots=True)
class DiplomacyVariant:
    """A map with the end and the scoring of its games. A game string can set the fields in ``OPTIONS``."""

    board: Map
    shown: int  # the number of past phases in a prompt
    last_year: int
    scoring: str = MATERIAL
    win_bonus: float = 5.0  # of material scores, for a sole leader in centres
    winner_threshold_sc: int = 10  # the centres that a leader needs to get the bonus

    def with_options(self, options: Mapping[str, str]) -> "DiplomacyVariant":
        """Return the variant with the options of a game string. Raises ``UnknownGame``."""
        return replace(self, **{name: _read_option(name, text) for name, text in options.items()})

    @property
    def rules_version(self) -> str:
        """The name of the rules, their text, and the scoring."""
        scored = f"{self.win_bonus:g}@{self.winner_threshold_sc}" if self.scoring == MATERIAL else self.scoring
        return f"diplomacy-{VERSION}:{self.board.name}:{self.last_year}:{scored}"


OPTIONS = {
    "last_year": "a year from 1901, after which the game ends",
    "scoring": f"{MATERIAL} or {PLACED}",
    "win_bonus": "points for a sole leader, 0 or more",
    "winner_threshold_sc": "the centres that a leader needs for them, 1 or more",
}
"""Options of a variant, with their allowed values."""


def _read_option(name: str, text: str) -> Any:
    """Return an option's value. Raises ``UnknownGame``."""
    value: Any = None
    with suppress(ValueError):
        match name:
            case "last_year" if int(text) >= FIRST_YEAR:
                value = int(text)
            case "scoring" if text in (MATERIAL, PLACED):
                value = text
            case "win_bonus" if 0 <= float(text) < inf:
                value = float(text)
            case "winner_threshold_sc" if int(text) >= 1:
                value = int(text)
    if value is None:
        described = "; ".join(f"{option}: {meaning}" for option, meaning in OPTIONS.items())
        raise UnknownGame(f"Diplomacy has no option {name}={text}.", hint=f"Its options are {described}.")
    return value


VARIANTS = {
    "diplomacy": DiplomacyVariant(STANDARD, shown=1, last_year=1910),
    "diplomacy_small": DiplomacyVariant(SMALL, shown=1, last_year=1906, winner_threshold_sc=5),
}
"""The variants by the name of their game."""


@dataclass(frozen=True, slots=True)
class PowerOrders(Answers):
    """The legal orders of a power. An answer has a line for each order, and then the closing tag."""

    position: Position
    power: int

    def options(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """See ``Answers.options``."""
        if parts and parts[-1] == CLOSE:
            return ()
        board = self.position.board
        previous = [parse_order(board, part[:-1]) for part in parts]
        orders = next_orders(self.position, self.power, previous)
        return tuple(f"{write_order(board, order)}\n" for order in orders) or (CLOSE,)

    def only(self) -> str | None:
        """Return the legal answer if there is only one, otherwise None."""
        parts: tuple[str, ...] = ()
        while options := self.options(parts):
            if len(options) > 1:
                return None
            parts += options
        return "".join(parts)


class DiplomacyText(TextTable):
    """N games of Diplomacy at once as text."""

    def __init__(self, variant: DiplomacyVariant, slots: int, max_moves: int | None = None) -> None:
        self._variant, self._max_moves = variant, max_moves
        board = self._board = variant.board
        self.spec = TextSpec(
            len(board.powers), variant.rules_version, preamble(board), stop=CLOSE, bots=tuple(BOTS), seats=board.powers
        )
        self._games: list[Game | None] = [None] * slots
        self._waits: list[dict[int, PowerOrders]] = [{} for _ in range(slots)]  # seats that have to answer
        self._orders: list[dict[str, list[Order]]] = [{} for _ in range(slots)]  # of this phase, by power
        self._histories: list[list[tuple[int, str]]] = [[] for _ in range(slots)]

    def reset(self, slots: Sequence[int], seeds: Sequence[int], openings: Sequence[int]) -> None:
        """See ``TextTable.reset``."""
        for slot, seed, opening in zip(slots, seeds, openings, strict=True):
            self._games[slot] = Game(self._board, Ending(last_year=self._variant.last_year))
            self._histories[slot] = []
            self._ask(slot)
            rng = Random(seed)
            for _ in range(opening):
                for seat, answers in list(self._waits[slot].items()):
                    self.submit(slot, seat, draw_answer(answers, rng))
                self._play(slot)

    def pending(self) -> list[TextTurn]:
        """See ``TextTable.pending``."""
        turns = []
        for slot, waits in enumerate(self._waits):
            game = self._games[slot]
            if game is not None:
                past = game.turns[-self._variant.shown :]
                turns += [
                    TextTurn(slot, seat, prompt(game.position, seat, past), waits[seat]) for seat in sorted(waits)
                ]
        return turns

    def submit(self, slot: int, seat: int, answer: str) -> None:
        """See ``TextTable.submit``."""
        answers = self._waits[slot].get(seat)
        parts = parts_of(answers, answer) if answers is not None else None
        if parts is None:
            raise IllegalAnswer(answer, slot, seat)
        self._take(slot, seat, parts)
        self._histories[slot].append((seat, answer))
        del self._waits[slot][seat]

    def _take(self, slot: int, seat: int, parts: tuple[str, ...]) -> None:
        orders = [parse_order(self._board, part[:-1]) for part in parts[:-1]]
        self._orders[slot][self._board.powers[seat]] = orders

    def advance(self) -> None:
        """See ``TextTable.advance``."""
        for slot, game in enumerate(self._games):
            if game is not None and not self._over(game) and not self._waits[slot]:
                self._play(slot)

    def _play(self, slot: int) -> None:
        """Judge the phase, and the following phases that leave no choice."""
        game = self._games[slot]
        assert game is not None
        while not self._over(game) and not self._waits[slot]:
            game.play(self._orders[slot])
            self._ask(slot)

    def _ask(self, slot: int) -> None:
        """Find the seats that have to answer, and answer for the others."""
        game = self._games[slot]
        assert game is not None
        self._orders[slot], self._waits[slot] = {}, {}
        if self._over(game):
            return
        for seat in range(self.spec.players):
            answers = PowerOrders(game.position, seat)
            only = answers.only()
            if only is None:
                self._waits[slot][seat] = answers
            elif only != CLOSE:
                self._take(slot, seat, parts_of(answers, only) or ())

    def _over(self, game: Game) -> bool:
        return game.outcome is not None or self._cut_off(game)

    def _cut_off(self, game: Game) -> bool:
        return game.outcome is None and self._max_moves is not None and len(game.turns) >= self._max_moves

    def bot(self, name: str, turn: TextTurn, rng: Random) -> str:
        """See ``TextTable.bot``."""
        game = self._games[turn.slot]
        if name not in BOTS or game is None:
            raise UnknownGame(
                f"{self.spec.rules_version} has no bot {name!r}.", hint=f"Its bots: {', '.join(self.spec.bots)}."
            )
        orders = in_order(game.position, turn.seat, BOTS[name](game.position, turn.seat, rng))
        return "".join(f"{write_order(self._board, order)}\n" for order in orders) + CLOSE

    def running(self) -> NDArray[np.bool_]:
        """See ``TextTable.running``."""
        return np.array([game is not None and not self._over(game) for game in self._games])

    def scores(self) -> NDArray[np.float32]:
        """See ``TextTable.scores``; by the variant's scoring."""
        return np.array([self._scores(game) for game in self._games], dtype=np.float32)

    def _scores(self, game: Game | None) -> list[float]:
        if game is None:
            return [0.0] * self.spec.players
        counts, variant = game.position.counts(), self._variant
        if variant.scoring == PLACED:
            return placed_scores(counts, self._board.to_win)
        return material_scores(counts, variant.win_bonus, variant.winner_threshold_sc)

    def returns(self) -> NDArray[np.float32]:
        """See ``TextTable.returns``.

        Seats get parts by score. With material scores, a solo winner gets all, and the powers in a draw get equal
        parts.
        """
        return np.array([self._returns(game) for game in self._games], dtype=np.float32)

    def _returns(self, game: Game | None) -> list[float]:
        if game is None or not self._over(game):
            return [0.0] * self.spec.players
        scores = self._scores(game)
        if self._variant.scoring == PLACED:  # these scores count a solo already
            return zero_sum(shares([score - LEAST_PLACED for score in scores]))
        if game.outcome is not None and game.outcome.kind != "limit":
            winners = game.outcome.powers
            return zero_sum(shares([float(power in winners) for power in range(self.spec.players)]))
        return zero_sum(shares(scores))

    def truncated(self) -> NDArray[np.bool_]:
        """See ``TextTable.truncated``."""
        return np.array([game is not None and self._cut_off(game) for game in self._games])

    def history(self, slot: int) -> list[tuple[int, str]]:
        """See ``TextTable.history``."""
        return list(self._histories[slot])
