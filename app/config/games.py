"""The built-in configurations; a new configuration is an entry in ``GAMES``.

The games of a request give between 2,000 and 10,000 rows: enough to fill the batches of self-play, few enough that the
model that plays them is still fresh.
"""

from typing import Any

from flyball.app.config.settings import (
    LANGUAGE_BACKEND,
    SEARCH_BACKEND,
    TOWER,
    WINDOWS,
    EvaluationSettings,
    GameConfig,
    LanguageSettings,
    NetworkSettings,
    PpoCoefficients,
    SearchSettings,
    SelfplaySettings,
)
from flyball.app.core import HEURISTIC, RANDOM, BotName, ConfigKey


def _games(count: int, openings: int = 0) -> SelfplaySettings:
    return SelfplaySettings(games_per_request=count, opening_plies=openings)


def _searched(key: str, game: str, games: int, openings: int, **settings: Any) -> GameConfig:
    """Return a two-player board game that learns from searches (ADR-028).

    A search needs few positions a move, because it finds what chance would not; random openings vary the games.
    """
    usual: dict[str, Any] = {
        "players": 2,
        "engine": "flyball",
        "backend": SEARCH_BACKEND,
        "network": NetworkSettings(kind=WINDOWS, hidden=(256,), residual=2),
        "search": SearchSettings(simulations=16, batch_size=512),
        "selfplay": _games(games, openings),
        "rows_per_training": 16_384,
    }
    return GameConfig(key=ConfigKey(key), game=game, **(usual | settings))


def _text_game(
    key: str, game: str, openings: int, builtins: tuple[BotName, ...] = (RANDOM,), **language: Any
) -> GameConfig:
    """Return a game that a language model plays as text (ADR-031).

    The game is small enough for two cores. A game's answers share one reward, so a step in the right direction takes
    many games.
    """
    return GameConfig(
        key=ConfigKey(key),
        game=game,
        players=2,
        backend=LANGUAGE_BACKEND,
        builtins=builtins,
        language=LanguageSettings(base_layers=2, base_width=64, batch_rows=128, legality_coef=0.5, **language),
        selfplay=_games(256, openings),
        evaluation=EvaluationSettings(opening_plies=2, random_games=100, model_games=100, anchor_games=50),
        rows_per_training=2_048,
        learning_rate=6e-3,
        epochs=1,
    )


def _diplomacy(
    key: str, game: str, *, players: int, bots: tuple[BotName, ...], games: int, **language: Any
) -> GameConfig:
    """Return a Diplomacy variant that a language model plays (ADR-031).

    The game is played as text. A lineup consists of whole rotations, and the games of a lineup are a group. So the size
    of a group is a multiple of the number of players.
    """
    usual: dict[str, Any] = {
        "base_layers": 2,
        "base_width": 64,
        "teacher": "coordinated",
        "group_games": games // 4,
        "batch_rows": 128,
    }
    return GameConfig(
        key=ConfigKey(key),
        game=game,
        players=players,
        backend=LANGUAGE_BACKEND,
        builtins=(RANDOM, *bots),
        language=LanguageSettings(**(usual | language)),
        selfplay=SelfplaySettings(games_per_request=games, opening_plies=1, most_lineups=4, most_opponents=7),
        evaluation=EvaluationSettings(
            opening_plies=1, random_games=5 * players, model_games=10 * players, anchor_games=5 * players, members=1
        ),
        rows_per_training=24 * games,
        learning_rate=5e-3,
        epochs=1,
    )


_WITH_HEURISTIC = (RANDOM, HEURISTIC)

GAMES: dict[ConfigKey, GameConfig] = {
    entry.key: entry
    for entry in (
        GameConfig(
            key=ConfigKey("tic_tac_toe_2p"),
            game="tic_tac_toe",
            players=2,
            engine="flyball",
            ppo=PpoCoefficients(entropy_coef=0.05),  # otherwise so small a game runs out of fresh positions
            selfplay=_games(256, openings=2),
            evaluation=EvaluationSettings(opening_plies=2),  # more random moves would decide the game
        ),
        _searched(
            "connect_four_2p",
            "connect_four",
            games=512,
            openings=12,
            builtins=_WITH_HEURISTIC,
            # Few moves are legal, so few positions have to be looked at. With value_scale 1 it learns more slowly.
            search=SearchSettings(simulations=8, batch_size=512, value_scale=0.2, value_lambda=0.9),
            epochs=2,
            # For PPO; with less entropy, games soon end after a dozen moves, and training stops improving.
            ppo=PpoCoefficients(gae_lambda=0.9, batch_size=512, entropy_coef=0.06, entropy_coef_end=0.03),
        ),
        _searched(
            "breakthrough6_2p",
            "breakthrough(rows=6,columns=6)",
            games=128,
            openings=8,
            builtins=_WITH_HEURISTIC,
            search=SearchSettings(simulations=16, batch_size=512, value_lambda=0.9),
        ),
        _searched(
            "hex7_2p",
            "hex(board_size=7)",
            games=128,
            openings=8,
            search=SearchSettings(simulations=16, batch_size=512, value_lambda=0.75),
        ),
        _searched("go7_2p", "go(board_size=7)", games=128, openings=8),
        _searched("othello_2p", "othello", games=64, openings=12),
        _searched(
            "ultimate_tic_tac_toe_2p",
            "ultimate_tic_tac_toe",
            games=64,
            openings=12,
            network=NetworkSettings(hidden=(256, 256), residual=2),  # its boards are too small for windows
        ),
        _searched(
            "clobber_2p",
            "clobber(rows=5,columns=6)",
            games=128,
            openings=6,
            ppo=PpoCoefficients(entropy_coef=0.01, gae_lambda=0.5),
        ),
        GameConfig(key=ConfigKey("oh_hell_3p"), game="oh_hell(players=3)", players=3),
        GameConfig(key=ConfigKey("maedn_4p"), game="maedn(players=4)", players=4, selfplay=_games(48)),
        GameConfig(
            key=ConfigKey("chinese_checkers_3p"),
            game="chinese_checkers(players=3)",
            players=3,
            max_moves=300,
            builtins=_WITH_HEURISTIC,
            selfplay=_games(32),
        ),
        GameConfig(
            key=ConfigKey("hearts_4p"),
            game="hearts",
            players=4,
            engine="flyball",
            builtins=_WITH_HEURISTIC,
            selfplay=_games(160),
            evaluation=EvaluationSettings(temperature=0.0),  # greedy: deals vary the games
        ),
        GameConfig(
            key=ConfigKey("shogi_2p"),
            game="shogi",
            players=2,
            engine="flyball",
            max_moves=500,
            builtins=_WITH_HEURISTIC,
            network=NetworkSettings(kind=TOWER, blocks=2, channels=32, policy_head="planes"),
            rows_per_training=16_384,
            epochs=2,
            ppo=PpoCoefficients(gae_lambda=0.9),  # games are long, and only their ends are rewarded
            selfplay=_games(64, openings=4),
            evaluation=EvaluationSettings(random_games=64, model_games=128, anchor_games=64),
        ),
        GameConfig(
            key=ConfigKey("minishogi_2p"),
            game="minishogi",
            players=2,
            engine="flyball",
            max_moves=500,
            builtins=_WITH_HEURISTIC,
            network=NetworkSettings(kind=TOWER, blocks=2, channels=32, policy_head="planes"),
            selfplay=_games(128, openings=2),
        ),
        _text_game("tic_tac_toe_text_2p", "tic_tac_toe", openings=2, teacher=RANDOM, lessons=8_192),
        # Few lessons: the loop begins within minutes on two cores, and GRPO has something left to teach.
        _text_game(
            "connect_four_text_2p",
            "connect_four",
            openings=4,
            builtins=_WITH_HEURISTIC,
            lessons=12_800,
            lesson_rate=4e-3,
        ),
        _diplomacy(
            "diplomacy_small_3p", "diplomacy_small", players=3, bots=("chaos", "coordinated"), games=24, lessons=8_192
        ),
        _diplomacy(
            "diplomacy_7p",
            "diplomacy",
            players=7,
            bots=("chaos", "defensive", "territorial", "coordinated"),
            games=28,
            lessons=8_192,
            most_tokens=256,
        ),
    )
}
