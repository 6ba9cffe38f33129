"""Frozen settings of runs and game configurations."""

from app.config.deployment import Deployment, LogLevel
from app.config.feedback import FeedbackSettings
from app.config.folder import DEFAULT_RUN_FOLDER, RunFolder
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
    "DEFAULT_RUN_FOLDER",
    "GAMES",
    "LAPTOP",
    "PROFILES",
    "Deployment",
    "EvaluationSettings",
    "FeedbackSettings",
    "GameConfig",
    "LogLevel",
    "NetworkSettings",
    "PpoSettings",
    "RunFolder",
    "RunSettings",
    "SelfplaySettings",
    "Settings",
]
