"""From a configuration to a table."""

from app.config import GameConfig
from app.games.openspiel import OpenSpielTable
from app.games.parity import ParityChecker
from app.games.table import Table


def open_table(config: GameConfig, slots: int) -> Table:
    """Return a table for ``slots`` games of a configuration. Raises ``UnknownGame``."""
    return OpenSpielTable(config.game, config.players, slots, config.max_moves)


def checker_for(config: GameConfig) -> ParityChecker:
    """Return the parity checker of a configuration. Raises ``UnknownGame``."""
    return ParityChecker(config.game, config.players, config.max_moves)
