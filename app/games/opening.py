"""From a configuration to a table."""

from app.config import GameConfig
from app.games.connect_four import ConnectFourTable
from app.games.hearts.cards import SEATS
from app.games.hearts.parity import HeartsChecker
from app.games.hearts.rules import HeartsRules, parse_rules
from app.games.hearts.table import HeartsTable
from app.games.openspiel import OpenSpielTable, load_game
from app.games.othello import OthelloTable
from app.games.parity import ParityChecker
from app.games.table import Table, UnknownGame

_BOARDS = {"connect_four": ConnectFourTable, "othello": OthelloTable}
"""Board games that we have rules of."""


def open_table(config: GameConfig, slots: int) -> Table:
    """Return a table for ``slots`` games of a configuration. Raises ``UnknownGame``."""
    hearts = own_hearts(config)
    if hearts is not None:
        return HeartsTable(hearts, slots, config.selfplay.rewards)
    if config.selfplay.rewards != "terminal":
        raise UnknownGame(
            f"{config.game!r} is rewarded at its end, not {config.selfplay.rewards}.",
            hint="Leave rewards at 'terminal'; Hearts with engine = 'flyball' has others.",
        )
    name = _name(config)
    if config.engine == "flyball":  # ours are the usual boards: with other options, OpenSpiel plays
        usual, asked = load_game(name, config.players), load_game(config.game, config.players)
        if asked.get_parameters() == usual.get_parameters():
            return _BOARDS[name](slots, config.max_moves)
    return OpenSpielTable(config.game, config.players, slots, config.max_moves)


def checker_for(config: GameConfig) -> ParityChecker:
    """Return the parity checker of a configuration. Raises ``UnknownGame``."""
    hearts = own_hearts(config)
    return ParityChecker(config.game, config.players, config.max_moves) if hearts is None else HeartsChecker(hearts)


def own_hearts(config: GameConfig) -> HeartsRules | None:
    """Return the rules of a configuration that plays our own Hearts, else None.

    Raises ``UnknownGame`` where our own rules are asked for and there are none.
    """
    if config.engine != "flyball" or _name(config) in _BOARDS:
        return None
    rules = parse_rules(config.game)
    if (config.players, config.max_moves) != (SEATS, None):
        raise UnknownGame(
            f"Hearts is played by {SEATS}, to its end; {config.key} has players = {config.players} and max_moves = "
            f"{config.max_moves}.",
            hint="Set players = 4, and leave max_moves out.",
        )
    return rules


def _name(config: GameConfig) -> str:
    return config.game.partition("(")[0]
