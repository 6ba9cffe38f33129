"""Catalogue of text games: a configuration gives a text table."""

import re
from collections.abc import Callable
from functools import partial

from flyball.app.config import GameConfig
from flyball.app.games.table import UnknownGame
from flyball.app.language.board_text import BOARDS, BoardText
from flyball.app.language.diplomacy_text import OPTIONS, VARIANTS, DiplomacyText
from flyball.app.language.text_game import TextTable

BASE_MODEL = "base_model"
"""The player that is the base model without an adapter; a league may have it as a bot."""

TEXT_GAMES: dict[str, Callable[[int, int | None], TextTable]] = {
    **{name: partial(BoardText, words) for name, words in BOARDS.items()},
    **{name: partial(DiplomacyText, variant) for name, variant in VARIANTS.items()},
}
"""Makers of tables, from a number of slots and a move limit, by the name of a game."""

_GAME = re.compile(r"(?P<name>\w+)(?:\((?P<options>\w+=[^=,()]+(?:,\w+=[^=,()]+)*)\))?")


def text_table(game: str, slots: int, max_moves: int | None = None) -> TextTable:
    """Return a table for a game string such as ``diplomacy(scoring=placed)``. Raises ``UnknownGame``."""
    match = _GAME.fullmatch(game)
    name, text = (match["name"], match["options"]) if match else (game, None)
    if text is not None and name in VARIANTS:
        options = dict(option.split("=") for option in text.split(","))
        return DiplomacyText(VARIANTS[name].with_options(options), slots, max_moves)
    if text is not None or name not in TEXT_GAMES:
        raise UnknownGame(
            f"{game!r} is no text game.",
            hint=f"Those of backend language: {', '.join(sorted(TEXT_GAMES))}. Diplomacy alone has options, such as "
            f"diplomacy(scoring=placed): {', '.join(OPTIONS)}.",
        )
    return TEXT_GAMES[name](slots, max_moves)


def open_text_table(config: GameConfig, slots: int) -> TextTable:
    """Return a table for ``slots`` games of a configuration. Raises ``UnknownGame``."""
    table = text_table(config.game, slots, config.max_moves)
    if table.spec.players != config.players:
        raise UnknownGame(
            f"{config.game!r} is played by {table.spec.players}, the configuration says {config.players}.",
            hint=f"Set players = {table.spec.players}, and let the key end with it.",
        )
    return table
