"""Drawings of all reachable positions in the catalogue's games."""

from xml.etree import ElementTree as ET

import numpy as np
import pytest
from board_games import SLOT
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.app.config import GAMES, PROFILES, GameConfig
from flyball.app.dashboard.boards import draw
from flyball.app.games import FINISHED, open_table
from flyball.app.games.board_table import EMPTY
from flyball.app.games.positions import BoardPosition, ShogiPosition, spectator_of

LARGER = {
    "go7_2p": "go(board_size=19)",
    "hex7_2p": "hex(board_size=11)",
    "breakthrough6_2p": "breakthrough(rows=8,columns=8)",
    "clobber_2p": "clobber(rows=10,columns=10)",
}
CONFIGS = {
    **{str(key): GAMES[key] for key in PROFILES["full"]},
    **{game: GAMES[key].replace(game=game, engine="openspiel") for key, game in LARGER.items()},
}
PIECES = ("black-rim", "white-rim", "pawn-black", "pawn-white", "hex-0", "hex-1", "inner", "nought", "cross")


def reached(config: GameConfig, seed: int, moves: int) -> list[int]:
    """Return the history of a random game after some decisions."""
    table, rng = open_table(config, 1), np.random.default_rng(seed)
    table.reset(SLOT, [seed])
    for _ in range(moves):
        if table.seats()[0] == FINISHED:
            break
        legal = np.flatnonzero(table.observe(SLOT)[1][0])
        table.step(SLOT, np.array([rng.choice(legal)], dtype=np.int32))
    return table.history(0)


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=12)
@given(seed=st.integers(0, 2**31), moves=st.integers(0, 500), share=st.floats(0, 1))
def test_reachable_positions_are_drawn_whole(name: str, seed: int, moves: int, share: float):
    config = CONFIGS[name]
    history, spectator = reached(config, seed, moves), spectator_of(config)
    plies = spectator.plies(history)
    ply = plies[round(share * (len(plies) - 1))]
    position = spectator.position(history[: ply.played])
    drawn = draw(position)
    root = ET.fromstring(drawn)
    names = [one.get("class", "").split() for one in root.iter()]
    assert "style" not in {key for one in root.iter() for key in one.attrib}
    assert {one.get("id") for one in root.iter()} <= {None, "black-stone", "white-stone", "board-title", "board-text"}
    if isinstance(position, BoardPosition):
        pieces = int((position.cells != EMPTY).sum())
        shown = sum(bool({*PIECES} & {*classes}) for classes in names)
        expected = {"breakthrough": 4 * pieces, "tic_tac_toe": pieces + int((position.cells == 0).sum())}
        assert shown == expected.get(position.game, pieces)
        assert len(position.last) <= 2
    if isinstance(position, ShogiPosition):
        held = sum(len(hand) for hand in position.hands)
        assert sum("koma" in classes for classes in names) == int((position.pieces != 0).sum()) + held
    width, height = map(float, root.get("viewBox", "").split()[2:])
    for circle in root.iter("{http://www.w3.org/2000/svg}circle"):
        if circle.get("cx") != "0":  # of a piece that was moved to its place
            assert 0 <= float(circle.get("cx", "")) <= width
            assert 0 <= float(circle.get("cy", "")) <= height
