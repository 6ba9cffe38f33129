"""Drawings of games: SVG from positions, by plain functions."""

from collections.abc import Callable

from flyball.app.config import GameConfig
from flyball.app.dashboard.boards.grids import (
    breakthrough,
    clobber,
    connect_four,
    othello,
    tic_tac_toe,
    ultimate_tic_tac_toe,
)
from flyball.app.dashboard.boards.hearts import hearts
from flyball.app.dashboard.boards.shogi import shogi
from flyball.app.dashboard.boards.stones import go, hex_
from flyball.app.dashboard.boards.text import printed
from flyball.app.games.positions import BoardPosition, HeartsPosition, NinePosition, Position, ShogiPosition

BOARDS: dict[str, Callable[[BoardPosition], str]] = {
    "breakthrough": breakthrough,
    "clobber": clobber,
    "connect_four": connect_four,
    "go": go,
    "hex": hex_,
    "othello": othello,
    "tic_tac_toe": tic_tac_toe,
}

_BLACK_FIRST, _CROSS_FIRST = ("Black", "White"), ("X", "O")
SIDES = {
    "breakthrough": _BLACK_FIRST,
    "clobber": ("White", "Black"),
    "connect_four": ("Yellow", "Red"),
    "go": _BLACK_FIRST,
    "hex": ("Red", "Blue"),
    "minishogi": _BLACK_FIRST,
    "othello": _BLACK_FIRST,
    "shogi": _BLACK_FIRST,
    "tic_tac_toe": _CROSS_FIRST,
    "ultimate_tic_tac_toe": _CROSS_FIRST,
}
"""Names of the seats in drawings, by game."""


def draw(position: Position) -> str:
    """Return a position as an SVG document. Its colours are in ``boards.css``."""
    match position:
        case BoardPosition():
            return BOARDS[position.game](position)
        case NinePosition():
            return ultimate_tic_tac_toe(position)
        case ShogiPosition():
            return shogi(position)
        case HeartsPosition():
            return hearts(position)
    return printed(position.text)


def side_names(config: GameConfig) -> tuple[str, ...]:
    """Return the name of each seat."""
    usual = tuple(f"Seat {seat}" for seat in range(config.players))
    return SIDES.get(config.game.partition("(")[0], usual)


def counts(position: Position) -> str:
    """Return how many pieces each side has, as text. Empty in games where the counts say nothing."""
    if not isinstance(position, BoardPosition) or position.game not in ("breakthrough", "clobber", "go", "othello"):
        return ""
    pieces = (f"{side} {(position.cells == seat).sum()}" for seat, side in enumerate(SIDES[position.game]))
    return f"On the board: {', '.join(pieces)}"


__all__ = ["counts", "draw", "side_names"]
