"""Boards as the seat to move sees them. Its own pieces come first, and always move the same way."""

import numpy as np
import pyspiel
import pytest
from board_games import SLOT, after

from flyball.app.config import GAMES
from flyball.app.games import FINISHED, open_table


def table_after(key, actions):
    """Return a table after some actions. Actions are in the movers' own numbering."""
    return after(open_table(GAMES[key], 1), *actions)


def planes(table, seat, cells):
    size = table.spec.observation_size // cells
    view = table.view(SLOT, np.array([seat], dtype=np.int8))[0]
    return view[: size * cells].reshape(size, cells)


def test_connect_four_shows_own_stones_first_columns_unchanged() -> None:
    table = table_after("connect_four_2p", [3, 3, 0])
    assert table.seats()[0] == 1
    mine, theirs, empty = planes(table, 1, 42)
    assert np.flatnonzero(mine).tolist() == [7 + 3]  # on top of the other's, in the second row from below
    assert np.flatnonzero(theirs).tolist() == [0, 3]
    assert empty.sum() == 39
    assert np.array_equal(planes(table, 0, 42), [theirs, mine, empty])


@pytest.mark.parametrize(
    ("key", "cells", "moves", "mine", "theirs"),
    [
        ("tic_tac_toe_2p", 9, [4, 0, 1], 1, 2),
        ("ultimate_tic_tac_toe_2p", 81, [4, 0, 1, 2], 1, 2),
        ("othello_2p", 64, [19], 1, 4),
        ("clobber_2p", 30, None, 14, 15),
        ("go7_2p", 49, [24, 0, 1], 1, 2),
    ],
)
def test_the_second_seat_counts_its_own_stones_first(key, cells, moves, mine, theirs) -> None:
    if moves is None:
        moves = [int(np.flatnonzero(table_after(key, []).observe(SLOT)[1][0])[0])]
    table = table_after(key, moves)
    seat = int(table.seats()[0])
    own, other = planes(table, seat, cells)[:2]
    assert seat == 1
    assert (own.sum(), other.sum()) == (mine, theirs)


@pytest.mark.parametrize(
    ("key", "game"),
    [
        ("connect_four_2p", "connect_four(egocentric_obs_tensor=true)"),
        ("hex7_2p", "hex(board_size=5,plain_obs_tensor=true)"),
        ("hex7_2p", "hex(board_size=5,swap=true)"),
        ("hex7_2p", "hex(num_rows=4,num_cols=6)"),
    ],
)
def test_game_whose_option_changes_planes_is_as_openspiel_shows(key: str, game: str) -> None:
    table, state = (open_table(GAMES[key].replace(game=game), 1), pyspiel.load_game(game).new_initial_state())
    table.reset(SLOT, [0])
    for _ in range(3):
        obs, mask = table.observe(SLOT)
        seat = int(table.seats()[0])
        assert obs[0].tolist() == state.observation_tensor(seat)
        assert np.flatnonzero(mask[0]).tolist() == state.legal_actions()
        action = state.legal_actions()[-1]
        state.apply_action(action)
        table.step(SLOT, np.array([action], dtype=np.int32))
    assert table.history(0) == state.history()


def ultimate(moves):
    obs = table_after("ultimate_tic_tac_toe_2p", moves).observe(SLOT)[0][0]
    parts = obs[243:253], obs[253:262], obs[262:271], obs[271:280], obs[280:]
    return [np.flatnonzero(part).tolist() for part in parts]


@pytest.mark.parametrize(
    ("moves", "seen"),
    [
        ([], [[9], [], [], [], []]),  # free choice
        ([4], [[4], [], [], [], []]),
        ([4, 4], [[4], [], [4], [], []]),  # the other took its centre
        ([4, 4, 0], [[0], [], [], [], []]),
        ([4, 4, 0, 4], [[4], [0], [4], [], []]),
        # The first seat takes cells 0, 1 and 2 of board 0; the second sends it back there every time.
        ([0, 1, 0, 2, 0, 0], [None, None, None, [], [0]]),
    ],
)
def test_ultimate_shows_the_board_to_play_in_and_those_won(moves, seen) -> None:
    assert all(wanted in (None, part) for wanted, part in zip(seen, ultimate(moves), strict=True))


@pytest.mark.parametrize(
    ("key", "mine", "theirs"),
    [("hex7_2p", [0, 8], [2, 30]), ("breakthrough6_2p", [36 + 2], [36 + 14]), ("connect_four_2p", [0, 1], [5, 6])],
)
def test_with_the_seats_swapped_the_other_seat_sees_the_same(key, mine, theirs) -> None:
    """The moves are the same whoever begins. One player makes the moves ``mine``, the other ``theirs``."""
    first = table_after(key, [move for pair in zip(mine, theirs, strict=True) for move in pair])
    second = table_after(key, [move for pair in zip(theirs, mine, strict=True) for move in pair])
    for seat in (0, 1):
        here = first.view(SLOT, np.array([seat], dtype=np.int8))
        there = second.view(SLOT, np.array([1 - seat], dtype=np.int8))
        assert np.array_equal(here, there)


def test_hex_joins_my_stones_to_my_edges() -> None:
    table = table_after("hex7_2p", [3, 3])  # each on its own first edge
    mine, first, second, theirs, their_first, their_second, empty = planes(table, 0, 49)
    assert np.flatnonzero(first).tolist() == [3]
    assert np.flatnonzero(their_first).tolist() == [21]  # their third cell down my left edge
    assert not any(plane.any() for plane in (mine, second, theirs, their_second))
    assert empty.sum() == 47


def test_breakthrough_always_moves_up_the_rows() -> None:
    for moves in ([], [36 + 2]):
        table = table_after("breakthrough6_2p", moves)
        seat = int(table.seats()[0])
        mine, theirs, _ = planes(table, seat, 36)
        assert np.flatnonzero(mine).max() < 12
        assert np.flatnonzero(theirs).min() >= 18
        cell = np.flatnonzero(table.observe(SLOT)[1][0]) // 6
        assert set(cell.tolist()) == set(range(6, 12))  # only the second row can move


def test_chinese_checkers_shows_all_seats_the_same_start() -> None:
    table = table_after("chinese_checkers_3p", [])
    views = table.view(np.zeros(3, dtype=np.int64), np.arange(3, dtype=np.int8))
    assert np.flatnonzero(views[0, :121]).tolist() == list(range(10))
    masks = []
    for seat in range(3):
        assert table.seats()[0] == seat
        masks.append(table.observe(SLOT)[1][0])
        table.step(SLOT, np.array([np.flatnonzero(masks[-1])[0]], dtype=np.int32))
    assert masks[0].any()
    for seat in (1, 2):
        assert np.array_equal(views[0], views[seat])
        assert np.array_equal(masks[0], masks[seat])


def test_maedn_offers_moves_of_the_pieces_shown_as_mine() -> None:
    table = open_table(GAMES["maedn_4p"], 1)
    table.reset(SLOT, [7])
    rng = np.random.default_rng(0)
    seats = set()
    while table.seats()[0] != FINISHED:
        seats.add(int(table.seats()[0]))
        obs, mask = table.observe(SLOT)
        fields = obs[0, :224].reshape(56, 4)[:44, 0]  # the common fields and my goals
        moves = np.flatnonzero(mask[0])
        # Actions 0 and 1, to pass and to bring a piece in, are forced where they are legal; 2 is my first field.
        assert set((moves - 2).tolist()) <= set(np.flatnonzero(fields).tolist())
        table.step(SLOT, np.array([rng.choice(moves)], dtype=np.int32))
    assert seats == {0, 1, 2, 3}
