"""Rules and encodings of games, in batches, from the mover's perspective. Seeds are arguments."""

from app.games import diplomacy, shogi
from app.games.catalogue import bots_of, checker_for, open_table, own_hearts
from app.games.codec import symmetry
from app.games.game import BrokenGame, Game
from app.games.parity import Checker, GameRecord
from app.games.table import (
    FINISHED,
    Heuristic,
    IllegalAction,
    Mask,
    Observations,
    Symmetry,
    Table,
    TableSpec,
    UnknownGame,
)

__all__ = [
    "FINISHED",
    "BrokenGame",
    "Checker",
    "Game",
    "GameRecord",
    "Heuristic",
    "IllegalAction",
    "Mask",
    "Observations",
    "Symmetry",
    "Table",
    "TableSpec",
    "UnknownGame",
    "bots_of",
    "checker_for",
    "diplomacy",
    "open_table",
    "own_hearts",
    "shogi",
    "symmetry",
]
