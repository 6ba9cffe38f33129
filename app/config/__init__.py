"""Frozen settings of runs and game configurations."""

from app.config.deployment import Deployment, RunFolder
from app.config.feedback import FeedbackSettings
from app.config.games import GAMES
from app.config.league import (
    MATCHMAKING,
    AdmissionSettings,
    Curve,
    LeagueSettings,
    MatchmakingSettings,
    TournamentSettings,
)
from app.config.loading import flatten, nest
from app.config.pipeline import SELF, CloningSettings, PipelinePpoSettings, PipelineSettings, TrainingSettings, suited
from app.config.run import LAPTOP, PROFILES, DeadlineSettings, ForeignSettings, RunSettings
from app.config.settings import (
    Builtin,
    EvaluationSettings,
    GameConfig,
    NetworkSettings,
    PpoSettings,
    SelfplaySettings,
    Settings,
)
