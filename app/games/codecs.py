"""The codec of every game that has one; any other is seen as OpenSpiel shows it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyspiel
from numpy.typing import NDArray

from app.games.boards import (
    SQUARE,
    breakthrough,
    clobber,
    connect_four,
    go,
    hex_board,
    othello,
    planes,
    tic_tac_toe,
    turn,
)
from app.games.codec import Codec, gather, identical, symmetry
from app.games.hearts.codec import hearts
from app.games.heuristics import chinese_checkers_heuristic
from app.games.oh_hell import oh_hell
from app.games.table import Indices, Symmetry

# Race games for several players from the mover's perspective.
#
# Layouts of the tensors and numbers of the actions are OpenSpiel's (version 2.0).

_FIELDS = 56  # 40 common ones, already rotated for the observer, and 4 x 4 goals
_COLOURS = 4
_STEPS = np.array([(-1, -1), (-1, 1), (0, -2), (0, 2), (1, -1), (1, 1)])  # rows and doubled columns


def maedn(players: int = 2) -> Codec:
    """Fields x (me, left, across, right), pieces still outside (a count up to 4) and the die.

    The game rotates the board for the observer but not the colours of the pieces; this does.
    """
    field, colour = np.divmod(np.arange(_FIELDS * _COLOURS), _COLOURS)
    outside = _FIELDS * _COLOURS + np.arange(4)
    die = _FIELDS * _COLOURS + 8 + np.arange(6)
    views = np.stack(
        [np.concatenate([field * _COLOURS + (colour + seat) % _COLOURS, outside, die]) for seat in range(players)]
    )
    return Codec(views.shape[1], gather(views), identical(players, 45), uniform_chance=True)


def chinese_checkers(players: int = 2) -> Codec:
    """Planes me, next, …, empty of the 121 cells, the star turned so that my home is always the first one.

    Actions: cell x direction, then passing. Only the layouts for 2, 3, 4 and 6 players exist.
    """
    homes = {2: (0, 3), 3: (0, 2, 4), 4: (0, 1, 3, 4), 6: (0, 1, 2, 3, 4, 5)}[players]
    cells, directions = _sixths()
    cell, direction = np.divmod(np.arange(121 * 6), 6)
    planes = np.arange(players + 1)[:, None] * 121
    views = np.stack([(planes + cells[home][None, :]).ravel() for home in homes])
    to_game = np.stack([np.append(cells[home][cell] * 6 + directions[home][direction], 726) for home in homes])
    heuristic = chinese_checkers_heuristic(_star(), _STEPS)
    return Codec(views.shape[1], gather(views), to_game, heuristic=heuristic)


def _sixths() -> tuple[Indices, Indices]:
    """Return where each cell [6, 121] and each direction [6, 6] comes to lie after 0 … 5 sixths of a turn."""
    centred = _star()
    cells, directions = [], []
    for sixths in range(6):
        cells.append(_find(_turned(centred, sixths), centred))
        directions.append(_find(_turned(_STEPS, sixths), _STEPS))
    return np.stack(cells), np.stack(directions)


def _star() -> Indices:
    """Return (row, doubled column) of the 121 cells from the centre, in the game's order: by row, then column."""
    triangle = {(r, c) for r in range(-4, 9) for c in range(r - 8, 9 - r, 2)}
    star = triangle | {(-r, c) for r, c in triangle}
    return np.array(sorted(star))


def _turned(points: Indices, sixths: int) -> Indices:
    """Turn points clockwise about the centre. In axial coordinates a sixth maps (x, z) to (-z, x + z)."""
    z, x = points[:, 0], (points[:, 1] - points[:, 0]) // 2
    for _ in range(sixths):
        x, z = -z, x + z
    return np.stack([z, 2 * x + z], axis=1)


def _find(points: Indices, among: Indices) -> Indices:
    places = {tuple(point): i for i, point in enumerate(among.tolist())}
    return np.array([places[tuple(point)] for point in points.tolist()])


# Ultimate tic-tac-toe from the mover's perspective.
#
# Besides the 9 boards the mover sees what decides its choice: the cells of the board it must play in, in a place of
# their own, and which boards are won. Without these an action, a number from 0 to 8, means another cell every move.

_CELLS = 81
_FORCED = 3 * _CELLS  # where the one-hot of the forced board begins
_HERE = _FORCED + 10
_WON = _HERE + 18
_SIZE = _WON + 18
_LINES = np.array([(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)])


def ultimate_tic_tac_toe() -> Codec:
    """Planes me, other, empty of 9 boards x 9 cells, the forced board, its cells, the boards won.

    The forced board is one of ten, the tenth being free choice, which shows no cells. The last two are pairs of
    nine, mine and the other's.
    """
    forced = _FORCED + 1 + np.arange(10)  # the game writes the seat to move in between
    views = np.stack([np.append(planes(order, np.arange(_CELLS)), forced) for order in ((2, 1, 0), (1, 2, 0))])
    pick = gather(views)

    def encode(raw: NDArray[np.float32], seats: NDArray[np.int8]) -> NDArray[np.uint8]:
        base = np.asarray(pick(raw, seats), dtype=np.uint8)
        stones = base[:, : 2 * _CELLS].reshape(-1, 2, 9, 9)
        # The product with the one-hot is the forced board; free choice is in no board.
        here = np.einsum("kb,kpbc->kpc", base[:, _FORCED : _FORCED + 9], stones)
        won = stones[..., _LINES].all(axis=-1).any(axis=-1)
        return np.concatenate([base, here.reshape(-1, 18), won.reshape(-1, 18).astype(np.uint8)], axis=1)

    return Codec(_SIZE, encode, identical(2, 9), tuple(map(_symmetry, SQUARE)))


def _symmetry(name: str) -> Symmetry:
    cells = turn(name, 3, 3)
    boards = (cells[:, None] * 9 + cells[None, :]).ravel()
    pair = planes((0, 1), cells)
    forced = np.append(_FORCED + cells, _FORCED + 9)
    observation = [planes((0, 1, 2), boards), forced, _HERE + pair, _WON + pair]
    return symmetry(name, np.concatenate(observation), cells)


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
