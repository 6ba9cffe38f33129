"""Parity check of Shogi: our own rules and OpenSpiel's replay a game.

OpenSpiel ends some games differently from the official rules. These differences are no failures:

- OpenSpiel ends a game when both kings are in the opponents' camps (drawn), and when a seat has moved with its king
  there and has 28 points (won). Officially the seat to move declares, and needs ten pieces in the camp too. After
  OpenSpiel's end, only our own rules replay the game.
- OpenSpiel knows no declaration by White with 27 points.
- At a fourth occurrence, OpenSpiel counts six checks in a row as perpetual check, even if not all moves since the first
  occurrence gave check.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from flyball.app.games.openspiel import load_game
from flyball.app.games.parity import Checker, GameRecord, ReplayChecker
from flyball.app.games.shogi.replay import Replay
from flyball.app.games.shogi.rules import OCCURRENCES
from flyball.app.games.shogi.table import ShogiRules, ShogiTable
from flyball.app.games.shogi.variant import BASE, BISHOP, KING, ROOK, SHOGI
from flyball.app.games.table import Indices

Ruling = Literal["same", "camp", "declaration", "perpetual", "unexplained"]
"""Ends of a game in two engines: the same, different for one of the reasons above, or for no known reason."""

_CAMP = SHOGI.zone * SHOGI.side
_POINTS, _CHECKS = 28, 6  # of OpenSpiel's rulings


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of comparing two engines on a game."""

    ruling: Ruling
    compared: int  # positions in which both had legal moves
    fault: str  # the first difference; empty: none


class ShogiChecker(Checker):
    """Checker that replays a game by our own rules and OpenSpiel's. It compares legal moves and the ending."""

    against = "openspiel and its own rules"

    def __init__(self, rules: ShogiRules, max_moves: int | None) -> None:
        self._own = ReplayChecker(lambda: ShogiTable(rules, 1, max_moves))
        self._action, self._openspiel = rules.numbering.action, load_game("shogi", 2)

    def failures(self, record: GameRecord) -> list[str]:
        """See ``Checker.failures``."""
        if failures := self._own.failures(record):
            return failures
        fault = compare(self._openspiel, self._action[list(record.history)].tolist()).fault
        return [fault] if fault else []


def compare(openspiel: Any, actions: Sequence[int], sfen: str = SHOGI.sfen) -> Comparison:
    """Play legal actions by both engines until either ends the game.

    ``actions`` have the variant's numbers. A game that goes on for both engines after the last action ends in the same
    way.
    """
    ours, theirs = Replay(SHOGI, sfen, limit=len(actions) + 1), openspiel.new_initial_state(sfen)
    for number in range(len(actions) + 1):
        if ours.over or theirs.is_terminal():
            ruling = _ruling(ours, theirs)
            ends = f"the outcome is {ours.returns}, by OpenSpiel {theirs.returns()}"
            fault = f"after {number} moves {ends}" if ruling == "unexplained" else ""
            return Comparison(ruling, number, fault)
        legal = openspiel_actions()[ours.seat, ours.legal]
        if set(legal.tolist()) != set(theirs.legal_actions()):
            fault = f"move {number}: only one engine allows {sorted({*legal.tolist()} ^ {*theirs.legal_actions()})}"
            return Comparison("unexplained", number, fault)
        if number < len(actions):
            theirs.apply_action(int(openspiel_actions()[ours.seat, actions[number]]))
            ours.play(actions[number])
    return Comparison("same", len(actions) + 1, "")


def _ruling(ours: Replay, theirs: Any) -> Ruling:
    """Return why one of the engines, or both, end the game here."""
    repeated = ours.position["occurrences"] >= OCCURRENCES
    if ours.over and theirs.is_terminal() and ours.returns == theirs.returns():
        return "same"
    if not ours.over and theirs.returns() == _in_camp(ours):
        return "camp"
    if ours.over and not theirs.is_terminal() and ours.winner == ours.seat == 1 and not repeated:
        return "declaration"
    if repeated and theirs.is_terminal() and not any(ours.returns):
        return "perpetual"
    return "unexplained"


def _in_camp(game: Replay) -> list[float] | None:
    """Return OpenSpiel's outcome for kings in the camps; None if OpenSpiel's game goes on."""
    board, hand = game.position["board"], game.position["hands"][1]
    camp = -board[SHOGI.cells - _CAMP : SHOGI.cells]  # of the seat that has just moved
    if KING not in camp:
        return None
    kinds = [*BASE[camp[(camp > 0) & (camp != KING)]].tolist(), *np.repeat(np.arange(1, KING), hand).tolist()]
    if sum(5 if kind in (BISHOP, ROOK) else 1 for kind in kinds) >= _POINTS:
        return [-1.0, 1.0] if game.seat == 0 else [1.0, -1.0]
    return [0.0, 0.0] if KING in board[:_CAMP] else None


@cache
def openspiel_actions() -> Indices:
    """Return OpenSpiel's number of each action of each seat. OpenSpiel's squares begin at the corner nearest to 9i."""
    side, cells = SHOGI.side, SHOGI.cells
    rows, columns = np.divmod(np.arange(cells), side)
    black = (side - 1 - rows) * side + columns
    numbers = np.empty((2, SHOGI.actions), dtype=np.int64)
    for seat, square in enumerate((black, black[::-1])):
        for action in range(SHOGI.actions):
            cell, to, promotes, code = SHOGI.parts(action)
            move = (square[cell] * cells + square[to]) * 2 + promotes
            numbers[seat, action] = cells * cells * 2 + (code - 1) * cells + square[to] if code else move
    return numbers
