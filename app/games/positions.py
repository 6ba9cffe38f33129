"""Positions of a game, ply by ply, as people look at them.

They follow from the history that ``Table.history`` returns. A spectator sees everything, also hidden cards. Rows of a
board count from the top, as the board is printed.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flyball.app.config import GameConfig
from flyball.app.core import import_modules
from flyball.app.games.board_table import EMPTY
from flyball.app.games.catalogue import openspiel_rules, own_hearts, own_shogi
from flyball.app.games.hearts.cards import CARDS, RANKS, SEATS, TWO_OF_CLUBS
from flyball.app.games.hearts.play import GAME, HOLD, LEFT, PASSED, RIGHT, choose, is_passing, result
from flyball.app.games.hearts.rules import HeartsRules
from flyball.app.games.openspiel import CHANCE
from flyball.app.games.own import is_own
from flyball.app.games.shogi.replay import Replay
from flyball.app.games.shogi.rules import Position as Record
from flyball.app.games.shogi.sfen import parse_sfen, write_move
from flyball.app.games.shogi.table import ShogiRules
from flyball.app.games.shogi.variant import SHOGI, Variant
from flyball.app.games.table import FINISHED
from flyball.app.games.tic_tac_toe import LINES

NOBODY = -1
"""Mover of a ply that no seat played. Such a ply is the beginning of a game, or a deal of cards."""

FACE_DOWN = -1
"""A card that is not seen."""

Cell = tuple[int, int]
"""Row and column."""


@dataclass(frozen=True, slots=True)
class Ply:
    """A position's place in a history, and the move that led there. The move includes the chance that follows it."""

    played: int  # entries of the history up to the position
    mover: int  # a seat, or NOBODY
    text: str
    hidden_text: str = ""  # for the other seats, if they do not see the move


@dataclass(frozen=True, slots=True, eq=False)
class BoardPosition:
    """Pieces on a board."""

    game: str  # OpenSpiel's name
    cells: NDArray[np.int8]  # [rows, columns], a seat or EMPTY
    last: tuple[Cell, ...]  # cells of the last move: where the piece is, and where it came from


@dataclass(frozen=True, slots=True, eq=False)
class NinePosition:
    """Ultimate tic-tac-toe."""

    cells: NDArray[np.int8]  # [board, cell], a seat or EMPTY
    owners: tuple[int, ...]  # of each board: a seat or EMPTY
    board: int | None  # to play on; None: the seat to move chooses one
    last: tuple[Cell, ...]  # board and cell


@dataclass(frozen=True, slots=True, eq=False)
class ShogiPosition:
    """Shogi or minishogi, as Black sees it."""

    variant: Variant
    pieces: NDArray[np.int8]  # [side, side] codes of pieces; White's are negative
    hands: tuple[dict[int, int], dict[int, int]]  # Black's and White's: number of pieces by code
    last: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class HeartsPosition:
    """A hand of Hearts; cards have the numbers of ``flyball.app.games.hearts.cards``."""

    hands: tuple[tuple[int, ...], ...]  # of each seat
    passing: str  # direction in which cards are passed in this hand: left, across, right or nobody
    passed: tuple[tuple[int, ...], ...]  # cards that each seat has passed or is going to
    trick: tuple[tuple[int, int], ...]  # seat and card of the trick being played, or of the last one
    taker: int | None  # of a complete trick
    points: tuple[int, ...]  # in this hand
    scores: tuple[int, ...]  # of the hands before
    viewer: int | None = None  # the seat that sees the position, with the others' cards face down; None: a spectator


@dataclass(frozen=True, slots=True)
class TextPosition:
    """A position as its game prints it."""

    text: str


Position = BoardPosition | NinePosition | ShogiPosition | HeartsPosition | TextPosition


class Spectator(Protocol):
    """Reads the histories of a configuration's games."""

    def plies(self, history: Sequence[int]) -> list[Ply]:
        """Return all positions worth a look, from the beginning of the game."""

    def position(self, history: Sequence[int]) -> Position:
        """Return the position after a history, which ends at a ply."""

    def names(self, history: Sequence[int], actions: Sequence[int]) -> list[str]:
        """Return texts of actions after a history. ``actions`` have the numbers of the seat to move."""


def spectator_of(config: GameConfig) -> Spectator:
    """Return the spectator of a configuration's games. Raises ``UnknownGame`` or ``UnknownPlugin``."""
    import_modules(config.imports)
    if is_own(config.game):
        return NumberSpectator()
    if (hearts := own_hearts(config)) is not None:
        return HeartsSpectator(hearts)
    if (shogi := own_shogi(config)) is not None:
        return ShogiSpectator(shogi)
    return OpenSpielSpectator(config)


class NumberSpectator(Spectator):
    """User-defined games, of which only the action numbers are known."""

    def plies(self, history: Sequence[int]) -> list[Ply]:
        """See ``Spectator.plies``; who moved is not in the history."""
        return [Ply(0, NOBODY, ""), *(Ply(k + 1, NOBODY, f"action {action}") for k, action in enumerate(history))]

    def position(self, history: Sequence[int]) -> Position:
        """See ``Spectator.position``."""
        return TextPosition(f"Actions so far: {' '.join(map(str, history)) or 'none'}")

    def names(self, history: Sequence[int], actions: Sequence[int]) -> list[str]:  # noqa: ARG002
        """See ``Spectator.names``."""
        return [f"action {action}" for action in actions]


_BOARDS = frozenset({"breakthrough", "clobber", "connect_four", "go", "hex", "othello", "tic_tac_toe"})
_FROM_BELOW = frozenset({"connect_four", "go"})  # games whose first row is at the bottom
_NINE = (9, 9)  # boards and cells of ultimate tic-tac-toe
_HEX = np.array([1, 1, 1, 1, EMPTY, 0, 0, 0, 0], dtype=np.int8)
"""The owner of a stone in each plane of OpenSpiel's hex."""


class OpenSpielSpectator(Spectator):
    """Games that have OpenSpiel's action numbers: OpenSpiel's games, and board games by our own rules."""

    def __init__(self, config: GameConfig) -> None:
        self._rules = openspiel_rules(config)
        self._name: str = self._rules.game.get_type().short_name
        # without a codec of our own the layout is unknown
        self._has_codec = self._rules.spec.observation_type is np.uint8

    def plies(self, history: Sequence[int]) -> list[Ply]:
        """See ``Spectator.plies``."""
        state, plies = self._rules.game.new_initial_state(), [Ply(0, NOBODY, "")]
        for played, action in enumerate(history, start=1):
            seat = state.current_player()
            text = self._text(state, seat, action)
            state.apply_action(action)
            before = plies[-1]
            if seat == CHANCE:
                texts = (before.text, f"({text})") if before.mover != NOBODY else ()
                plies[-1] = Ply(played, before.mover, " ".join(texts))
            else:
                plies.append(Ply(played, seat, text))
        return plies

    def position(self, history: Sequence[int]) -> Position:
        """See ``Spectator.position``."""
        before = self._state(history[:-1])
        state = before.clone()
        if history:
            state.apply_action(history[-1])
        if self._name == SHOGI.name:
            return _shogi_position(parse_sfen(str(before), SHOGI), parse_sfen(str(state), SHOGI), SHOGI)
        if self._has_codec and self._name in _BOARDS:
            cells = self._cells(state)
            return BoardPosition(self._name, cells, _last(self._cells(before), cells))
        if self._has_codec and self._name == "ultimate_tic_tac_toe":
            cells = self._cells(state)
            owners = tuple(_owner(board) for board in cells)
            return NinePosition(cells, owners, self._forced_board(state), _last(self._cells(before), cells))
        text = str(state)
        if self._name == "oh_hell":  # it prints -1 for a bid that is not made yet
            text = re.sub(r"(?m)^Bids:.*", lambda bids: bids[0].replace("-1", "-"), text)
        return TextPosition(text)

    def names(self, history: Sequence[int], actions: Sequence[int]) -> list[str]:
        """See ``Spectator.names``."""
        state = self._state(history)
        seat = state.current_player()
        numbers = self._rules.codec.to_game[seat][list(actions)].tolist()
        return [self._text(state, seat, number) for number in numbers]

    def _state(self, history: Sequence[int]) -> Any:
        state = self._rules.game.new_initial_state()
        for action in history:
            state.apply_action(action)
        return state

    def _text(self, state: Any, seat: int, action: int) -> str:
        text: str = state.action_to_string(seat, action)
        if self._name == "go":  # 'B d4'
            return text.partition(" ")[2].lower()
        if self._name == "connect_four":  # 'x3'
            return f"column {action + 1}"
        if self._name == "tic_tac_toe":  # 'x(1,2)'
            return "row {}, column {}".format(*(number + 1 for number in divmod(action, 3)))
        if self._name == "ultimate_tic_tac_toe":  # 'Choose local board 4', 'Local board 4: x(1,2)'
            before, _, mark = text.partition(":")
            return f"board {int(before[-1]) + 1}, cell {action + 1}" if mark else f"chooses board {action + 1}"
        return text

    def _cells(self, state: Any) -> NDArray[np.int8]:
        """Return the pieces [rows, columns]; in ultimate tic-tac-toe [board, cell]."""
        if self._name == "hex":  # its codec has no plane for the winning stone
            planes = np.asarray(state.observation_tensor(0)).reshape(self._rules.game.observation_tensor_shape())
            stones: NDArray[np.int8] = _HEX[planes.argmax(axis=0)]
            return stones
        observation = self._rules.observe([state], np.zeros(1, dtype=np.int8))[0]
        nine = self._name == "ultimate_tic_tac_toe"
        _, rows, columns = (3, *_NINE) if nine else self._rules.spec.planes or (0, 0, 0)
        own, others = observation[: 2 * rows * columns].reshape(2, rows, columns) > 0
        cells = np.where(own, 0, np.where(others, 1, EMPTY)).astype(np.int8)
        return cells[::-1] if self._name in _FROM_BELOW else cells

    def _forced_board(self, state: Any) -> int | None:
        """Return the board to play on in ultimate tic-tac-toe."""
        observation = self._rules.observe([state], np.zeros(1, dtype=np.int8))[0]
        board = int(observation[3 * _NINE[0] * _NINE[1] :][: _NINE[0] + 1].argmax())
        return board if board < _NINE[0] and not state.is_terminal() else None


class ShogiSpectator(Spectator):
    """Shogi and minishogi by our own rules. Texts of moves are those of USI."""

    def __init__(self, rules: ShogiRules) -> None:
        self._variant, self._numbering = rules.variant, rules.numbering

    def plies(self, history: Sequence[int]) -> list[Ply]:
        """See ``Spectator.plies``."""
        return [
            Ply(0, NOBODY, ""),
            *(Ply(k + 1, k % 2, write_move(self._action(n), k % 2, self._variant)) for k, n in enumerate(history)),
        ]

    def position(self, history: Sequence[int]) -> Position:
        """See ``Spectator.position``."""
        game = Replay(self._variant)
        before = game.position.copy()
        for number in history:
            before = game.position.copy()
            game.play(self._action(number))
        return _shogi_position(before, game.position, self._variant)

    def names(self, history: Sequence[int], actions: Sequence[int]) -> list[str]:
        """See ``Spectator.names``."""
        seat = len(history) % 2
        return [write_move(self._action(number), seat, self._variant) for number in actions]

    def _action(self, number: int) -> int:
        return int(self._numbering.action[number])


class HeartsSpectator(Spectator):
    """Hearts by our own rules; a game is one hand or several."""

    def __init__(self, rules: HeartsRules) -> None:
        self._rules = rules

    def plies(self, history: Sequence[int]) -> list[Ply]:
        """See ``Spectator.plies``; each deal is a ply."""
        return [ply for _, ply in self._read(history)] or [Ply(0, NOBODY, "")]

    def position(self, history: Sequence[int]) -> Position:
        """See ``Spectator.position``."""
        *_, (position, _) = [(TextPosition("Nothing is dealt."), None), *self._read(history)]
        return position

    def names(self, history: Sequence[int], actions: Sequence[int]) -> list[str]:  # noqa: ARG002
        """See ``Spectator.names``."""
        return list(map(card_name, actions))

    def _read(self, history: Sequence[int]) -> Iterable[tuple[HeartsPosition, Ply]]:
        """Yield every position and its ply."""
        scores, played, number = [0] * SEATS, 0, 0
        while played < len(history):
            direction, deck = history[played], [_OURS[card] for card in history[played + 1 : played + 1 + CARDS]]
            played, number = played + 1 + CARDS, number + 1
            game = _dealt_hand(deck, direction, self._rules.option_set)
            trick: list[tuple[int, int]] = []
            yield _hearts_position(game, trick, scores), Ply(played, NOBODY, f"hand {number} is dealt")
            moves = [_OURS[card] for card in history[played : played + CARDS + PASSED * SEATS * (direction != HOLD)]]
            for card in moves:
                seat, passing = int(game["mover"]), is_passing(game)
                trick = [] if passing or len(trick) == SEATS else trick
                trick += [] if passing else [(seat, card)]
                choose(game, card)
                played += 1
                text = f"{'passes ' if passing else ''}{card_name(card)}"
                hidden_text = "passes a card" if passing else ""
                yield _hearts_position(game, trick, scores), Ply(played, seat, text, hidden_text)
            points = [int(result(game, seat, int(self._rules.moon_for_shooter))) for seat in range(SEATS)]
            scores = [score + hand_points for score, hand_points in zip(scores, points, strict=True)]


_OURS = [[0, 1, 3, 2][card % SEATS] * RANKS + card // SEATS for card in range(CARDS)]
"""Our numbers of OpenSpiel's cards, whose hearts come before spades."""


def card_name(card: int) -> str:
    """Return a card's rank and suit, for instance ``Q♠``."""
    return f"{('2', '3', '4', '5', '6', '7', '8', '9', '10', 'J', 'Q', 'K', 'A')[card % RANKS]}{'♣♦♠♥'[card // RANKS]}"


def _dealt_hand(deck: Sequence[int], direction: int, options: int) -> Any:
    """Return the record of a hand. Card k of ``deck`` was dealt to seat k mod 4."""
    game = np.zeros(1, dtype=GAME)[0]
    for k, card in enumerate(deck):
        game["hand"][k % SEATS] |= 1 << card
    game["deck"], game["direction"], game["options"] = deck, direction, options
    if direction == HOLD:
        game["mover"] = game["leader"] = deck.index(TWO_OF_CLUBS) % SEATS
    else:
        game["leader"] = FINISHED
    return game


def _hearts_position(game: Any, trick: Sequence[tuple[int, int]], scores: Sequence[int]) -> HeartsPosition:
    return HeartsPosition(
        hands=tuple(map(_cards, game["hand"].tolist())),
        passing={HOLD: "nobody", LEFT: "left", RIGHT: "right"}.get(int(game["direction"]), "across"),
        passed=tuple(map(_cards, game["given"].tolist())),
        trick=tuple(trick),
        taker=int(game["leader"]) if len(trick) == SEATS else None,
        points=tuple(game["points"].tolist()),
        scores=tuple(scores),
    )


def _cards(cards: int) -> tuple[int, ...]:
    return tuple(card for card in range(CARDS) if cards >> card & 1)


def _last(before: NDArray[np.int8], after: NDArray[np.int8], empty: int = EMPTY) -> tuple[Cell, ...]:
    """Return the cell that the last move went to, then its origin.

    The origin is the cell that the piece came from, if it was not placed. ``before`` and ``after`` hold the owners of
    all pieces. Pieces that turned or were taken on the way do not count.
    """
    placed = (before == empty) & (after != empty)
    arrived = placed if placed.any() else (before != after) & (after != empty)
    left = (after == empty) & np.isin(before, after[arrived]) & (before != empty)
    return tuple((int(row), int(column)) for cells in (arrived, left) for row, column in np.argwhere(cells))


def _owner(board: NDArray[np.int8]) -> int:
    """Return the seat with a line on a small board, or EMPTY."""
    lines = board[LINES]
    return next((seat for seat in (0, 1) if (lines == seat).all(axis=1).any()), EMPTY)


def _shogi_position(before: Record, after: Record, variant: Variant) -> ShogiPosition:
    boards = (_as_black(game["board"][: variant.cells], int(game["seat"]), variant) for game in (after, before))
    pieces, was = boards
    hands = after["hands"][::-1] if after["seat"] else after["hands"]
    black, white = ({code: int(hand[code - 1]) for code in variant.codes if hand[code - 1]} for hand in hands)
    return ShogiPosition(variant, pieces, (black, white), _last(np.sign(was), np.sign(pieces), 0))


def _as_black(board: NDArray[np.int8], seat: int, variant: Variant) -> NDArray[np.int8]:
    """Turn a board from the mover's view to Black's."""
    return (-board[::-1] if seat else board.copy()).reshape(variant.side, variant.side)
