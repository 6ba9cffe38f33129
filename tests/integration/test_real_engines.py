"""Installed engines, each at its game; others are skipped."""

import os
import shutil
from typing import Any

import pytest
from own_training import EXAMPLES

from flyball.app.config import GAMES, BotSettings, GameConfig
from flyball.app.config.loading import load
from flyball.app.core import ConfigKey
from flyball.app.play.check_player import check_player, measure_player

GO = GAMES[ConfigKey("go7_2p")]
CHESS = GameConfig(key=ConfigKey("chess_2p"), game="chess", players=2, max_moves=120)
SHOGI = GameConfig(key=ConfigKey("shogi_2p"), game="shogi", players=2, max_moves=120)
OWN_SHOGI = GAMES[ConfigKey("shogi_2p")].replace(max_moves=120)
MINISHOGI = GAMES[ConfigKey("minishogi_2p")].replace(max_moves=120)
GNUGO = load(EXAMPLES, config_file=EXAMPLES / "gnugo_player.toml").run.config(GO.key).bots["gnugo"]

FAIRY: dict[str, Any] = {"command": ("fairy-stockfish",), "protocol": "usi", "nodes": 50}
ENGINES: dict[str, tuple[GameConfig, dict[str, Any]]] = {
    "gnugo": (GO, GNUGO.model_dump()),
    "stockfish": (CHESS, {"command": ("stockfish",), "protocol": "uci", "nodes": 50, "options": {"Hash": 1}}),
    "fairy-stockfish": (SHOGI, FAIRY),
    "fairy-stockfish, own rules": (OWN_SHOGI, FAIRY),
    "fairy-stockfish, minishogi": (MINISHOGI, {**FAIRY, "options": {"UCI_Variant": "minishogi"}}),
}


def configured(engine: str) -> GameConfig:
    """Return the engine's game with the engine as the bot ``engine``.

    Skips the test where the engine is not installed.
    """
    config, settings = ENGINES[engine]
    path = shutil.which(settings["command"][0], path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/games")
    if path is None:
        pytest.skip(f"{settings['command'][0]} is not installed")
    command = (path, *settings["command"][1:])
    return config.replace(bots={"engine": BotSettings(**{**settings, "command": command})})


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_plays_by_the_rules_and_repeatably(engine: str) -> None:
    config = configured(engine)
    assert check_player("engine", config) == []
    figures = measure_player("engine", config, games=2)
    assert figures["score_against_random"] > 0.5
    assert figures["moves_per_second"] > 1


def test_engine_without_an_option_is_refused() -> None:
    config = configured("stockfish")
    bot = config.bots["engine"].replace(options={"Skil Level": 3})
    (finding,) = check_player("engine", config.replace(bots={"engine": bot}))
    assert "it has no option 'skil level', but" in finding.what
    assert "Skill Level" in finding.what
