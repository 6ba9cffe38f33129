"""The feedback controllers: pure reducers that read events and turn knobs.

The league's keeper is left to its module, which imports NumPy, because every command imports this package.
"""

from flyball.app.controllers.controller import Controller, Watched
from flyball.app.controllers.curriculum import CurriculumIntegration
from flyball.app.controllers.feedback_fold import FeedbackFold
from flyball.app.controllers.gauntlet import GauntletFeedbackController
from flyball.app.controllers.learning_rate import EvaluationFeedbackHandler
from flyball.app.controllers.lifecycle import ModelLifecycleCoordinator
from flyball.app.controllers.lineage import REMEMBERED, Lineage
from flyball.app.controllers.loop import FeedbackLoopController
from flyball.app.controllers.loss_watch import LossWatch
from flyball.app.controllers.scheduler import SelfplayScheduler
from flyball.app.controllers.state import FeedbackState, States, state_of
from flyball.app.controllers.trend import RatingPoint, RatingPool
from flyball.app.controllers.trigger import TrainingTrigger
from flyball.app.controllers.watchdog import ModelPerformanceWatchdog, cusum_step, fixed_match

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
