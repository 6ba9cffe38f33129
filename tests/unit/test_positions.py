"""Positions, plies and names of moves, read from histories."""

import numpy as np
import pytest
from board_games import SLOT, after

from flyball.app.config import GAMES, PROFILES, GameConfig
from flyball.app.games import FINISHED, Table, open_table
from flyball.app.games.board_table import EMPTY
from flyball.app.games.positions import (
    NOBODY,
    BoardPosition,
    HeartsPosition,
    NinePosition,
    ShogiPosition,
    TextPosition,
    card_name,
    spectator_of,
)
from flyball.app.games.shogi.variant import PAWN, ROOK

NONE = EMPTY


def history_of(config: GameConfig, *moves: int) -> list[int]:
    return after(open_table(config, 1), *moves).history(0)


def played(config: GameConfig, seed: int, most: int = 10_000) -> Table:
    """Play the lowest and the highest legal action in turn."""
    table = open_table(config, 1)
    table.reset(SLOT, [seed])
    for k in range(most):
        if table.seats()[0] == FINISHED:
            break
        legal = np.flatnonzero(table.observe(SLOT)[1][0])
        table.step(SLOT, np.array([legal[-(k % 2)]], dtype=np.int32))
    return table


def board(key: str, *moves: int, **changes: object) -> BoardPosition:
    config = GAMES[key].replace(**changes)
    position = spectator_of(config).position(history_of(config, *moves))
    assert isinstance(position, BoardPosition)
    return position


def test_boards_show_discs_and_the_last_move():
    position = board("connect_four_2p", 3, 3, 0)
    assert position.cells[5].tolist() == [0, NONE, NONE, 0, NONE, NONE, NONE]
    assert position.cells[4].tolist() == [NONE, NONE, NONE, 1, NONE, NONE, NONE]
    assert position.last == ((5, 0),)
    position = board("othello_2p", 19)  # d3 turns d4
    assert position.cells[2, 3] == position.cells[3, 3] == 0
    assert position.last == ((2, 3),)
    position = board("go7_2p", 1, 0, 7)  # Black takes White's stone in the corner
    assert (position.cells[6, 0], position.cells[6, 1], position.cells[5, 0]) == (NONE, 0, 0)
    assert position.last == ((5, 0),)
    assert board("go7_2p", 49).last == ()
    position = board("hex7_2p", 0, 3, 2, game="hex(board_size=2)")  # a1; b2 as the second seat counts; a2
    assert position.cells.tolist() == [[0, NONE], [0, 1]]


def test_clobber_and_breakthrough_mark_both_squares():
    before, after_ = board("clobber_2p"), board("clobber_2p", 1)
    assert (before.cells == NONE).sum() == 0
    assert (after_.cells == NONE).sum() == 1
    (there, here) = after_.last
    assert after_.cells[there] == before.cells[here] != before.cells[there]
    assert after_.cells[here] == NONE
    config = GAMES["breakthrough6_2p"]
    table = open_table(config, 1)
    table.reset(SLOT, [0])
    action = int(np.flatnonzero(table.observe(SLOT)[1][0])[0])
    spectator = spectator_of(config)
    name = spectator.names([], [action])[0]
    table.step(SLOT, np.array([action], dtype=np.int32))
    position = spectator.position(table.history(0))
    there, here = (f"{'abcdef'[column]}{6 - row}" for row, column in position.last)
    assert name == here + there


def test_ultimate_tic_tac_toe_tells_boards_and_owners():
    config = GAMES["ultimate_tic_tac_toe_2p"]
    spectator, history = spectator_of(config), history_of(config, 4, 2, 8)
    position = spectator.position(history)
    assert isinstance(position, NinePosition)
    assert (position.cells[4, 2], position.cells[2, 8]) == (0, 1)
    assert position.board == 8
    assert position.last == ((2, 8),)
    texts = [ply.text for ply in spectator.plies(history)]
    assert texts == ["", "chooses board 5", "board 5, cell 3", "board 3, cell 9"]
    config = GAMES["ultimate_tic_tac_toe_2p"]
    table = played(config, 0)
    position = spectator_of(config).position(table.history(0))
    assert isinstance(position, NinePosition)
    assert position.board is None
    assert {0, 1} & set(position.owners)
    for cells, owner in zip(position.cells, position.owners, strict=True):
        lines = [*cells.reshape(3, 3), *cells.reshape(3, 3).T, cells[::4], cells[2:8:2]]
        assert [seat for seat in (0, 1) if any((line == seat).all() for line in lines)] == [owner] * (owner != NONE)


def test_shogi_is_drawn_alike_by_either_engine():
    config = GAMES["minishogi_2p"]
    spectator, table = spectator_of(config), open_table(config, 1)
    for moves in range(3):
        table.reset(SLOT, [0])
        for _ in range(moves):
            legal = np.flatnonzero(table.observe(SLOT)[1][0])
            table.step(SLOT, np.array([legal[0]], dtype=np.int32))
        position = spectator.position(table.history(0))
        assert isinstance(position, ShogiPosition)
        assert position.pieces[0, 0] == -ROOK
        assert (position.pieces == PAWN).sum() == 1
    config = GAMES["shogi_2p"].replace(engine="openspiel", max_moves=20, network=GAMES["tic_tac_toe_2p"].network)
    table = played(config, 0, most=5)
    spectator = spectator_of(config)
    position = spectator.position(table.history(0))
    assert isinstance(position, ShogiPosition)
    assert len(position.last) == 2
    assert sum((position.pieces != 0).ravel()) + sum(sum(hand.values()) for hand in position.hands) == 40


def test_hearts_cards_add_up_in_each_position_of_a_match():
    config = GAMES["hearts_4p"].replace(game="hearts(hands=2)")
    history, spectator = played(config, 5).history(0), spectator_of(config)
    plies = spectator.plies(history)
    assert [ply.text for ply in plies if ply.mover == NOBODY] == ["hand 1 is dealt", "hand 2 is dealt"]
    taken = set()
    for ply in plies:
        position = spectator.position(history[: ply.played])
        assert isinstance(position, HeartsPosition)
        if ply.mover == NOBODY:
            taken = {card for hand in position.hands for card in hand}
            assert len(taken) == 52
        elif "passes" in ply.text:
            assert card_name(position.passed[ply.mover][-1]) is not None
        else:
            assert card_name(position.trick[-1][1]) == ply.text
            assert position.trick[-1][0] == ply.mover
            taken -= {position.trick[-1][1]}
            assert taken == {card for hand in position.hands for card in hand}
    assert sum(position.points) == 26
    assert sum(position.scores) in (26, 78)


def test_oh_hell_shows_dashes_for_bids_that_are_not_made():
    config = GAMES["oh_hell_3p"]
    spectator, history = spectator_of(config), played(config, seed=1, most=2).history(0)
    lines = []
    for ply in spectator.plies(history):
        position = spectator.position(history[: ply.played])
        assert isinstance(position, TextPosition)
        (bids,) = (line for line in position.text.split("\n") if line.startswith("Bids:"))
        lines.append(bids.split()[1:])
    assert [line.count("-") for line in lines] == [3, 2, 1]
    assert all(bid == "-" or int(bid) >= 0 for line in lines for bid in line)


def test_chance_and_own_games_are_told_in_texts():
    config = GAMES["maedn_4p"]
    history = played(config, 1, most=3).history(0)
    plies = spectator_of(config).plies(history)
    assert plies[0].mover == NOBODY
    assert plies[-1].played == len(history)
    assert all("roll" in ply.text for ply in plies[1:])
    assert isinstance(spectator_of(config).position(history), TextPosition)
    config = GAMES["tic_tac_toe_2p"].replace(game="own_rules:Nim", engine="openspiel")
    spectator = spectator_of(config)
    assert [ply.text for ply in spectator.plies([2, 1])] == ["", "action 2", "action 1"]
    assert spectator.position([2, 1]) == TextPosition("Actions so far: 2 1")


@pytest.mark.parametrize("key", PROFILES["full"])
def test_names_of_actions_are_the_texts_of_plies(key: str):
    config = GAMES[key]
    spectator, table = spectator_of(config), open_table(config, 1)
    table.reset(SLOT, [3])
    rng = np.random.default_rng(0)
    for _ in range(20):
        if table.seats()[0] == FINISHED:
            break
        history = table.history(0)
        legal = np.flatnonzero(table.observe(SLOT)[1][0]).tolist()
        names = spectator.names(history, legal)
        assert len(set(names)) == len(legal)
        chosen = int(rng.integers(len(legal)))
        table.step(SLOT, np.array([legal[chosen]], dtype=np.int32))
        plies, before = spectator.plies(table.history(0)), spectator.plies(history)
        assert plies[: len(before)] == before
        assert names[chosen] in plies[len(before)].text
