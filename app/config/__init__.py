"""Frozen settings of runs and game configurations."""

from flyball.app.config.base import FrozenModel, ManifestPart
from flyball.app.config.controllers import KNOBS, Knob
from flyball.app.config.deployment import Deployment, RunFolder, WandbMode
from flyball.app.config.devices import CPU, Compute, JobKind, Precision, TextServers
from flyball.app.config.feedback import FeedbackSettings
from flyball.app.config.games import GAMES
from flyball.app.config.layers import BadSettings, Document, flatten, nest
from flyball.app.config.pipeline import (
    SELF,
    CloningSettings,
    PipelinePpoSettings,
    PipelineSearchSettings,
    PipelineSettings,
    TrainedBackend,
    TrainingSettings,
)
from flyball.app.config.run import (
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
from flyball.app.config.settings import (
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
from flyball.app.config.store_address import StoreName
