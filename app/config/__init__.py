"""Frozen settings of runs and game configurations."""

from app.config.games import GAMES
from app.config.run import LAPTOP, PROFILES, RunSettings
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
    "LAPTOP",
    "PROFILES",
    "EvaluationSettings",
    "GameConfig",
    "NetworkSettings",
    "PpoSettings",
    "RunSettings",
    "SelfplaySettings",
    "Settings",
]
