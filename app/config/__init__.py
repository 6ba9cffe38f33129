"""Frozen settings of runs and game configurations."""

from app.config.base import FrozenModel, ManifestPart
from app.config.controllers import KNOBS, Knob
from app.config.deployment import Deployment, RunFolder, WandbMode
from app.config.devices import CPU, Compute, JobKind, Precision, TextServers
from app.config.feedback import FeedbackSettings
from app.config.games import GAMES
from app.config.layers import BadSettings, Document, flatten, nest
from app.config.pipeline import (
    SELF,
    CloningSettings,
    PipelinePpoSettings,
    PipelineSearchSettings,
    PipelineSettings,
    TrainedBackend,
    TrainingSettings,
)
from app.config.run import (
    LAPTOP,
    MATCHMAKING,
    PROFILES,
    AdmissionSettings,
    Curve,
    DeadlineSettings,
    ForeignSettings,
    LeagueSettings,
    MatchmakingSettings,
    RunSettings,
    TournamentSettings,
)
from app.config.settings import (
    DEFAULT_BACKEND,
    EXTERNAL_BACKEND,
    FEWEST_SIMULATIONS,
    LANGUAGE_BACKEND,
    MLP,
    MOST_SIMULATIONS,
    NETWORK_FIELDS,
    PARAMETERS,
    PLANES,
    REPLAY_ROWS,
    SEARCH_BACKEND,
    TOWER,
    WINDOWS,
    BotSettings,
    EngineProtocol,
    EvaluationSettings,
    GameConfig,
    LanguageSettings,
    NetworkSettings,
    Parameter,
    PpoCoefficients,
    PpoSettings,
    Scale,
    SearchSettings,
    SelfplaySettings,
    Width,
)
from app.config.store_address import StoreName
