"""The codec of every game that has one; any other is seen as OpenSpiel shows it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyspiel

from app.games.boards import (
    breakthrough,
    clobber,
    connect_four,
    go,
    hex_board,
    othello,
    tic_tac_toe,
)
from app.games.codec import Codec, identical
from app.games.hearts.codec import hearts
from app.games.oh_hell import oh_hell
from app.games.races import chinese_checkers, maedn
from app.games.ultimate import ultimate_tic_tac_toe

# What a codec depends on: the parameters of the game that change its layout, as the builder's keywords.
_BUILDERS: dict[str, tuple[Callable[..., Codec], tuple[str, ...]]] = {
    "breakthrough": (breakthrough, ("rows", "columns")),
    "chinese_checkers": (chinese_checkers, ("players",)),
    "clobber": (clobber, ("rows", "columns")),
    "connect_four": (connect_four, ("rows", "columns")),
    "go": (go, ("board_size",)),
    "hearts": (hearts, ("qs_breaks_hearts",)),
    "hex": (hex_board, ("board_size",)),
    "maedn": (maedn, ("players",)),
    "oh_hell": (oh_hell, ("players",)),
    "othello": (othello, ()),
    "tic_tac_toe": (tic_tac_toe, ()),
    "ultimate_tic_tac_toe": (ultimate_tic_tac_toe, ()),
}

_HARMLESS = frozenset(
    {
        *("handicap", "komi", "max_game_length", "max_moves", "string_rep", "twoPlayersOpposite", "x_in_row"),
        *("off_bid_penalty", "points_per_trick"),
        *("avoid_all_tricks_bonus", "can_lead_any_club", "can_lead_hearts_instead_of_qs", "jd_bonus"),
        *("must_break_hearts", "no_pts_on_first_trick", "pass_cards"),
    }
)
"""Options that change neither the actions nor where OpenSpiel shows what. With any other, a game is seen as it does."""


def codec_for(game: Any, tensor_size: int) -> Codec:
    """Return the codec of an OpenSpiel game whose observer's tensor has ``tensor_size`` features."""
    name = game.get_type().short_name
    if name not in _BUILDERS:
        return _as_shown(game.num_players(), game.num_distinct_actions(), tensor_size)
    builder, wanted = _BUILDERS[name]
    parameters = game.get_parameters()
    layout = {key: parameters[key] for key in wanted if key in parameters}
    usual = pyspiel.load_game(name, layout).get_parameters()
    if any(value != usual[key] for key, value in parameters.items() if key not in _HARMLESS):
        return _as_shown(game.num_players(), game.num_distinct_actions(), tensor_size)
    return builder(**layout)


def _as_shown(players: int, actions: int, tensor_size: int) -> Codec:
    return Codec(
        tensor_size,
        lambda raw, _seats: raw.astype(np.float32),
        identical(players, actions),
        kind=np.float32,
    )
