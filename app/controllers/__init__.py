"""The feedback controllers: pure reducers that read events and turn knobs.

The league's keeper is left to its module, which imports NumPy, because every command imports this package.
"""

from app.controllers.controller import Controller, Watched
from app.controllers.curriculum import CurriculumIntegration
from app.controllers.feedback_fold import FeedbackFold
from app.controllers.gauntlet import GauntletFeedbackController
from app.controllers.learning_rate import EvaluationFeedbackHandler
from app.controllers.lifecycle import ModelLifecycleCoordinator
from app.controllers.lineage import REMEMBERED, Lineage
from app.controllers.loop import FeedbackLoopController
from app.controllers.loss_watch import LossWatch
from app.controllers.scheduler import SelfplayScheduler
from app.controllers.state import FeedbackState, States, state_of
from app.controllers.trend import RatingPoint, RatingPool
from app.controllers.trigger import TrainingTrigger
from app.controllers.watchdog import ModelPerformanceWatchdog, cusum_step, fixed_match

__all__ = [
    "REMEMBERED",
    "Controller",
    "CurriculumIntegration",
    "EvaluationFeedbackHandler",
    "FeedbackFold",
    "FeedbackLoopController",
    "FeedbackState",
    "GauntletFeedbackController",
    "Lineage",
    "LossWatch",
    "ModelLifecycleCoordinator",
    "ModelPerformanceWatchdog",
    "RatingPoint",
    "RatingPool",
    "SelfplayScheduler",
    "States",
    "TrainingTrigger",
    "Watched",
    "cusum_step",
    "fixed_match",
    "state_of",
]
