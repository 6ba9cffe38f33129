"""The configurations Flyball knows. A new one is one entry in ``GAMES``."""

from app.config.settings import GameConfig
from app.core import ConfigKey

GAMES: dict[ConfigKey, GameConfig] = {
    entry.key: entry
    for entry in (
        GameConfig(key=ConfigKey("tic_tac_toe_2p"), game="tic_tac_toe", players=2),
        GameConfig(key=ConfigKey("connect_four_2p"), game="connect_four", players=2),
        GameConfig(key=ConfigKey("breakthrough6_2p"), game="breakthrough(rows=6,columns=6)", players=2),
        GameConfig(key=ConfigKey("hex7_2p"), game="hex(board_size=7)", players=2),
        GameConfig(key=ConfigKey("go7_2p"), game="go(board_size=7)", players=2),
        GameConfig(key=ConfigKey("othello_2p"), game="othello", players=2),
        GameConfig(key=ConfigKey("ultimate_tic_tac_toe_2p"), game="ultimate_tic_tac_toe", players=2),
        GameConfig(key=ConfigKey("clobber_2p"), game="clobber(rows=5,columns=6)", players=2),
        GameConfig(key=ConfigKey("oh_hell_3p"), game="oh_hell(players=3)", players=3),
        GameConfig(key=ConfigKey("maedn_4p"), game="maedn(players=4)", players=4),
        GameConfig(key=ConfigKey("chinese_checkers_3p"), game="chinese_checkers(players=3)", players=3, max_moves=300),
        GameConfig(key=ConfigKey("hearts_4p"), game="hearts", players=4),
    )
}
