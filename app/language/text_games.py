"""Catalogue of text games: a configuration of backend ``language`` gives a text table."""

from collections.abc import Callable
from functools import partial

from app.config import GameConfig
from app.games.table import UnknownGame
from app.language.board_text import BOARDS, BoardText
from app.language.diplomacy_text import VARIANTS, DiplomacyText
from app.language.text_game import TextTable

TEXT_GAMES: dict[str, Callable[[int, int | None], TextTable]] = {
    **{name: partial(BoardText, words) for name, words in BOARDS.items()},
    **{name: partial(DiplomacyText, variant) for name, variant in VARIANTS.items()},
}
"""Makers of tables, from a number of slots and a move limit, by the name in a configuration's ``game``."""


def open_text_table(config: GameConfig, slots: int) -> TextTable:
    """Return a table for ``slots`` games of a configuration. Raises ``UnknownGame``."""
    make = TEXT_GAMES.get(config.game)
    if make is None:
        raise UnknownGame(
            f"{config.game!r} is no text game.", hint=f"Those of backend language: {', '.join(sorted(TEXT_GAMES))}."
        )
    table = make(slots, config.max_moves)
    if table.spec.players != config.players:
        raise UnknownGame(
            f"{config.game!r} is played by {table.spec.players}, the configuration says {config.players}.",
            hint=f"Set players = {table.spec.players}, and let the key end with it.",
        )
    return table
