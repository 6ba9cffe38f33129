"""The feedback controllers: pure reducers that read events and turn knobs."""

from app.feedback.controller import Controller
from app.feedback.curriculum import CurriculumIntegration
from app.feedback.folding import FeedbackFold
from app.feedback.gauntlet import GauntletFeedbackController
from app.feedback.learning_rate import EvaluationFeedbackHandler
from app.feedback.level import cusum_step, fixed_match
from app.feedback.lifecycle import REMEMBERED, ModelLifecycleCoordinator
from app.feedback.loop import FeedbackLoopController
from app.feedback.loss_watch import LossWatch
from app.feedback.needs import Needs
from app.feedback.scheduler import SelfplayScheduler
from app.feedback.state import (
    CanonicalFeedbackState,
    FeedbackState,
    MonitoringFeedbackState,
    SignalFeedbackState,
)
from app.feedback.trend import RatingPoint, Slope, slope_per_hour
from app.feedback.trigger import TrainingTrigger
from app.feedback.watchdog import ModelPerformanceWatchdog

__all__ = [
    "REMEMBERED",
    "CanonicalFeedbackState",
    "Controller",
    "CurriculumIntegration",
    "EvaluationFeedbackHandler",
    "FeedbackFold",
    "FeedbackLoopController",
    "FeedbackState",
    "GauntletFeedbackController",
    "LossWatch",
    "ModelLifecycleCoordinator",
    "ModelPerformanceWatchdog",
    "MonitoringFeedbackState",
    "Needs",
    "RatingPoint",
    "SelfplayScheduler",
    "SignalFeedbackState",
    "Slope",
    "TrainingTrigger",
    "cusum_step",
    "fixed_match",
    "slope_per_hour",
]
