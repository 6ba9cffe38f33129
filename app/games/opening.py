"""From a configuration to a table."""

from app.config import GameConfig
from app.games.errors import UnknownGame
from app.games.hearts.cards import SEATS
from app.games.hearts.parity import HeartsChecker
from app.games.hearts.rules import HeartsRules, parse_rules
from app.games.openspiel import OpenSpielTable
from app.games.parity import ParityChecker
from app.games.table import Table


def open_table(config: GameConfig, slots: int) -> Table:
    """Return a table for ``slots`` games of a configuration. Raises ``UnknownGame``."""
    if config.engine == "flyball":
        # The compiler of the kernels takes long to load, and only this game needs it.
        from app.games.hearts.table import HeartsTable

        return HeartsTable(_hearts_rules(config), slots, config.selfplay.rewards)
    if config.selfplay.rewards != "terminal":
        raise UnknownGame(
            f"OpenSpiel's {config.game!r} is rewarded at its end, not {config.selfplay.rewards}.",
            hint="Leave rewards at 'terminal'; Hearts with engine = 'flyball' has others.",
        )
    return OpenSpielTable(config.game, config.players, slots, config.max_moves)


def checker_for(config: GameConfig) -> ParityChecker:
    """Return the parity checker of a configuration. Raises ``UnknownGame``."""
    if config.engine == "flyball":
        return HeartsChecker(_hearts_rules(config))
    return ParityChecker(config.game, config.players, config.max_moves)


def _hearts_rules(config: GameConfig) -> HeartsRules:
    if (config.players, config.max_moves) != (SEATS, None):
        raise UnknownGame(
            f"Hearts is played by {SEATS}, to its end; {config.key} has players = {config.players} and max_moves = "
            f"{config.max_moves}.",
            hint="Set players = 4, and leave max_moves out.",
        )
    return parse_rules(config.game)
