"""Rules and encodings of games, in batches, from the mover's perspective. Seeds are arguments."""

from flyball.app.games import diplomacy, shogi
from flyball.app.games.catalogue import bots_of, checker_for, open_table, own_hearts
from flyball.app.games.codec import symmetry
from flyball.app.games.game import BrokenGame, Game
from flyball.app.games.parity import Checker, GameRecord
from flyball.app.games.table import (
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
