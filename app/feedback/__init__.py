"""The feedback controllers: pure reducers that read events and turn knobs (seed 003, DESIGN §4)."""

from app.feedback.lifecycle import CurrentRow, ModelLifecycleCoordinator
from app.feedback.loop import FeedbackLoopController, FeedbackRow
from app.feedback.scheduler import SelfplayRow, SelfplayScheduler
from app.feedback.trigger import TrainingRow, TrainingTrigger

__all__ = [
    "CurrentRow",
    "FeedbackLoopController",
    "FeedbackRow",
    "ModelLifecycleCoordinator",
    "SelfplayRow",
    "SelfplayScheduler",
    "TrainingRow",
    "TrainingTrigger",
]
