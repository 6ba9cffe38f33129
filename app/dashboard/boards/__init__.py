"""Drawings of games: SVG from positions, by plain functions."""

from collections.abc import Callable

from app.dashboard.boards.grids import (
    breakthrough,
    clobber,
    connect_four,
    othello,
    tic_tac_toe,
    ultimate_tic_tac_toe,
)
from app.dashboard.boards.hearts import hearts
from app.dashboard.boards.shogi import shogi
from app.dashboard.boards.stones import go, hex_
from app.dashboard.boards.text import printed
from app.games.positions import BoardPosition, HeartsPosition, NinePosition, Position, ShogiPosition

BOARDS: dict[str, Callable[[BoardPosition], str]] = {
    "breakthrough": breakthrough,
    "clobber": clobber,
    "connect_four": connect_four,
    "go": go,
    "hex": hex_,
    "othello": othello,
    "tic_tac_toe": tic_tac_toe,
}


def draw(position: Position) -> str:
    """Return a position as an SVG document, whose colours are in ``boards.css``."""
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


__all__ = ["draw"]
