"""The feedback controllers: pure reducers that read events and turn knobs (seed 003, DESIGN §4)."""

from app.feedback.controller import Controller
from app.feedback.folding import FeedbackFold
from app.feedback.lifecycle import CurrentRow, ModelLifecycleCoordinator
from app.feedback.loop import FeedbackLoopController, FeedbackRow
from app.feedback.scheduler import SelfplayRow, SelfplayScheduler
from app.feedback.state import (
    CanonicalFeedbackState,
    FeedbackState,
    MonitoringFeedbackState,
    SignalFeedbackState,
)
from app.feedback.trend import RatingPoint, Slope, slope_per_hour
from app.feedback.trigger import TrainingRow, TrainingTrigger

__all__ = [
    "CanonicalFeedbackState",
    "Controller",
    "CurrentRow",
    "FeedbackFold",
    "FeedbackLoopController",
    "FeedbackRow",
    "FeedbackState",
    "ModelLifecycleCoordinator",
    "MonitoringFeedbackState",
    "RatingPoint",
    "SelfplayRow",
    "SelfplayScheduler",
    "SignalFeedbackState",
    "Slope",
    "TrainingRow",
    "TrainingTrigger",
    "slope_per_hour",
]
