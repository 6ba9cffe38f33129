"""Shogi and minishogi by our own compiled rules: games and notations.

>>> from flyball import shogi
>>> game = shogi.Replay(shogi.SHOGI)
>>> game.play(game.moves["7g7f"])
>>> shogi.write_sfen(game.position, shogi.SHOGI, 2)
'lnsgkgsnl/1r5b1/ppppppppp/9/9/2P6/PP1PPPPPP/1B5R1/LNSGKGSNL w - 2'
>>> shogi.parse_kif(shogi.write_kif(game.history)).actions == game.history
True
"""

from flyball.app.games.shogi.kif import KifGame, parse_kif, write_kif
from flyball.app.games.shogi.replay import Replay
from flyball.app.games.shogi.sfen import BadNotation, parse_move, parse_sfen, write_move, write_sfen
from flyball.app.games.shogi.variant import MINISHOGI, SHOGI, Variant

__all__ = [
    "MINISHOGI",
    "SHOGI",
    "BadNotation",
    "KifGame",
    "Replay",
    "Variant",
    "parse_kif",
    "parse_move",
    "parse_sfen",
    "write_kif",
    "write_move",
    "write_sfen",
]
