"""Catalogue of games: a configuration gives a table and a parity checker.

- Any OpenSpiel game can be played without code, from a configuration alone.
- ``CODECS``: OpenSpiel games with observations from the mover's perspective, and perhaps symmetries and a heuristic.
- ``BOARDS``, Hearts, Shogi and minishogi: games by our own rules, for configurations with ``engine = "flyball"``.
- ``flyball.app.games.own``: user-defined games, and PettingZoo's.
"""

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

import pyspiel

from flyball.app.config import GameConfig
from flyball.app.core import import_modules
from flyball.app.games import boards, tricks
from flyball.app.games.board_table import BoardRules, BoardTable
from flyball.app.games.breakthrough import breakthrough, breakthrough_rules
from flyball.app.games.clobber import clobber, clobber_rules
from flyball.app.games.codec import Codec
from flyball.app.games.connect_four import CONNECT_FOUR, connect_four
from flyball.app.games.go import go, go_rules
from flyball.app.games.hearts.cards import SEATS
from flyball.app.games.hearts.rules import HeartsRules, parse_rules
from flyball.app.games.hearts.table import HeartsTable
from flyball.app.games.hex import hex_board, hex_rules
from flyball.app.games.openspiel import OpenSpielTable, Rules, load_game
from flyball.app.games.othello import OTHELLO, othello
from flyball.app.games.own import is_own, open_own, own_checker
from flyball.app.games.parity import Checker, HeartsChecker, ParityChecker, ReplayChecker
from flyball.app.games.shogi.parity import ShogiChecker
from flyball.app.games.shogi.table import ShogiRules, ShogiTable
from flyball.app.games.shogi.table import parse_rules as parse_shogi
from flyball.app.games.shogi.variant import SHOGI, VARIANTS
from flyball.app.games.spec_check import spec_faults
from flyball.app.games.table import Table, UnknownGame
from flyball.app.games.tic_tac_toe import TIC_TAC_TOE, tic_tac_toe
from flyball.app.games.ultimate_tic_tac_toe import ULTIMATE_TIC_TAC_TOE, ultimate_tic_tac_toe

CODECS: dict[str, Callable[..., Codec]] = {
    "breakthrough": breakthrough,
    "chinese_checkers": boards.chinese_checkers,
    "clobber": clobber,
    "connect_four": connect_four,
    "go": go,
    "hearts": tricks.hearts,
    "hex": hex_board,
    "maedn": boards.maedn,
    "oh_hell": tricks.oh_hell,
    "othello": othello,
    "tic_tac_toe": tic_tac_toe,
    "ultimate_tic_tac_toe": ultimate_tic_tac_toe,
}
"""Codecs by OpenSpiel's name. A codec's arguments are the game options that change its layout."""

_HARMLESS = frozenset(
    {
        *("handicap", "komi", "max_game_length", "max_moves", "string_rep", "twoPlayersOpposite", "x_in_row"),
        *("off_bid_penalty", "points_per_trick"),
        *("avoid_all_tricks_bonus", "can_lead_any_club", "can_lead_hearts_instead_of_qs", "jd_bonus"),
        *("must_break_hearts", "no_pts_on_first_trick", "pass_cards"),
    }
)
"""Options that codecs may ignore: they change neither actions nor tensor layout."""

BOARDS: dict[str, Callable[..., BoardRules]] = {
    "breakthrough": breakthrough_rules,
    "clobber": clobber_rules,
    "connect_four": lambda: CONNECT_FOUR,
    "go": go_rules,
    "hex": hex_rules,
    "othello": lambda: OTHELLO,
    "tic_tac_toe": lambda: TIC_TAC_TOE,
    "ultimate_tic_tac_toe": lambda: ULTIMATE_TIC_TAC_TOE,
}
"""Board games by our own rules, by OpenSpiel's name.

A function's arguments are the game options that our rules support. If other options are set, OpenSpiel plays the game.
"""


def open_table(config: GameConfig, slots: int) -> Table:
    """Return a table for ``slots`` games of a configuration. Raises ``UnknownGame`` or ``UnknownPlugin``."""
    table = _open(config, slots)
    if config.outcome_scale not in (None, table.spec.outcome_scale):
        raise UnknownGame(
            f"{config.game!r} has an outcome_scale of its own, {table.spec.outcome_scale:g}, and the configuration "
            f"says {config.outcome_scale:g}.",
            hint=f"Leave games.{config.key}.outcome_scale out.",
        )
    if config.observation is not None and not isinstance(table, OpenSpielTable):
        raise UnknownGame(
            f"{config.game!r} has observations of its own, not OpenSpiel's.",
            hint=f"Leave games.{config.key}.observation out.",
        )
    if config.scale is not None:
        table.spec = replace(table.spec, scale=config.scale)
        for fault in spec_faults(table.spec):
            raise UnknownGame(f"games.{config.key}.scale: {fault.what}", hint=fault.hint)
    return table


def _open(config: GameConfig, slots: int) -> Table:
    import_modules(config.imports)
    own = is_own(config.game)
    hearts = None if own else own_hearts(config)
    if hearts is not None:
        return HeartsTable(hearts, slots, config.selfplay.rewards)
    if config.selfplay.rewards != "terminal":
        raise UnknownGame(
            f"{config.game!r} is rewarded at its end, not {config.selfplay.rewards}.",
            hint="Leave rewards at 'terminal'; Hearts with engine = 'flyball' has others.",
        )
    if own:
        return open_own(config, slots)
    shogi = own_shogi(config)
    if shogi is not None:
        return ShogiTable(shogi, slots, config.max_moves)
    if config.engine == "flyball":
        make = BOARDS[_name(config)]
        options = _options_for(make, load_game(config.game, config.players))
        if options is not None:
            return BoardTable(make(**options), slots, config.max_moves)
    return OpenSpielTable(openspiel_rules(config), slots, config.max_moves)


def bots_of(config: GameConfig) -> tuple[str, ...]:
    """Return the names of the bots that a configuration can play.

    The game's bots come first, weakest first, then the configured ones. Raises ``UnknownGame``, also when a configured
    bot has the name of one of the game's bots.
    """
    game_bots = open_table(config, slots=0).spec.bots
    if duplicates := sorted({*game_bots} & {*config.bots}):
        raise UnknownGame(
            f"{config.game} has a bot {duplicates[0]!r} of its own.",
            hint=f"Rename games.{config.key}.bots.{duplicates[0]}.",
        )
    return (*game_bots, *config.bots)


def checker_for(config: GameConfig) -> Checker:
    """Return the parity checker of a configuration. Raises ``UnknownGame`` or ``UnknownPlugin``."""
    import_modules(config.imports)
    if is_own(config.game):
        return own_checker(config)
    hearts = own_hearts(config)
    if hearts is not None:
        return HeartsChecker(openspiel_rules(config.replace(game=hearts.hand)), hearts)
    shogi = own_shogi(config)
    if shogi is not None:
        compared = shogi.variant is SHOGI
        return ShogiChecker(shogi, config.max_moves) if compared else ReplayChecker(lambda: open_table(config, 1))
    return ParityChecker(openspiel_rules(config), config.max_moves)


def own_hearts(config: GameConfig) -> HeartsRules | None:
    """Return the rules if a configuration plays our own Hearts, else None.

    Raises ``UnknownGame`` for engine "flyball" with a game, number of players or move limit that it does not support.
    """
    if config.engine != "flyball" or _name(config) in {*BOARDS, *VARIANTS}:
        return None
    if _name(config) not in CODECS:
        load_game(config.game, config.players)  # for a misspelt name, its error suggests the nearest games
    rules = parse_rules(config.game)
    if (config.players, config.max_moves) != (SEATS, None):
        raise UnknownGame(
            f"Hearts is played by {SEATS}, to its end; {config.key} has players = {config.players} and max_moves = "
            f"{config.max_moves}.",
            hint="Set players = 4, and leave max_moves out.",
        )
    return rules


def own_shogi(config: GameConfig) -> ShogiRules | None:
    """Return the rules if a configuration plays our own Shogi, else None.

    Minishogi is included. Raises ``UnknownGame``.
    """
    if config.engine != "flyball" or _name(config) not in VARIANTS:
        return None
    if config.players != 2:
        raise UnknownGame(
            f"{config.game!r} is played by 2, the configuration says {config.players}.", hint="Set players = 2."
        )
    return parse_shogi(config.game)


def openspiel_rules(config: GameConfig) -> Rules:
    """Load a configuration's OpenSpiel game with the codec of its game. Raises ``UnknownGame``."""
    loaded = load_game(config.game, config.players)
    return Rules(loaded, config.game, _codec_for(loaded), config.outcome_scale, config.observation)


def _codec_for(game: Any) -> Codec | None:
    """Return the codec of a loaded game, or None if no codec supports the game and its options."""
    make = CODECS.get(game.get_type().short_name)
    options = None if make is None else _options_for(make, game, _HARMLESS)
    return None if make is None or options is None else make(**options)


def _options_for(make: Callable[..., Any], game: Any, harmless: frozenset[str] = frozenset()) -> dict[str, Any] | None:
    """Return a loaded game's values of the options that ``make`` takes.

    Return None if any other option differs from its default, except for the ``harmless`` ones.
    """
    options = game.get_parameters()
    supported = {option: options[option] for option in signature(make).parameters if option in options}
    usual = pyspiel.load_game(game.get_type().short_name, supported).get_parameters()
    if any(value != usual[option] for option, value in options.items() if option not in harmless):
        return None
    return supported


def _name(config: GameConfig) -> str:
    return config.game.partition("(")[0]
