"""Rules and encodings: games played in batches, from the mover's perspective. Pure: seeds are arguments."""

from app.games.opening import checker_for, open_table, own_hearts
from app.games.openspiel import OpenSpielTable
from app.games.parity import GameRecord, ParityChecker
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
    "GameRecord",
    "Heuristic",
    "IllegalAction",
    "Mask",
    "Observations",
    "OpenSpielTable",
    "ParityChecker",
    "Symmetry",
    "Table",
    "TableSpec",
    "UnknownGame",
    "checker_for",
    "open_table",
    "own_hearts",
]
