"""The game of nim.py keeps its contract, and its own rules."""

from pathlib import Path

from nim import Nim

import flyball

SETTINGS = Path(__file__).with_name("nim.toml")


def test_game_keeps_its_contract():
    assert flyball.check_game("nim_2p", config_file=SETTINGS) == []


def test_game_is_won_by_the_last_move():
    game = Nim()
    game.reset(None)
    mover = None
    while game.seat() is not None:
        mover = game.seat()
        game.play(game.legal()[-1])
    assert game.returns()[mover] == 1
    assert sum(game.returns()) == 0
