"""Frozen settings of runs and game configurations."""

from app.config.games import GAMES
from app.config.settings import (
    EvaluationSettings,
    GameConfig,
    NetworkSettings,
    PpoSettings,
    SelfplaySettings,
    Settings,
)

__all__ = [
    "GAMES",
    "EvaluationSettings",
    "GameConfig",
    "NetworkSettings",
    "PpoSettings",
    "SelfplaySettings",
    "Settings",
]
