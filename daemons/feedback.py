"""The feedback daemon: the controllers that turn knobs, and those that watch models and losses."""

from app.controllers import (
    CurriculumIntegration,
    EvaluationFeedbackHandler,
    FeedbackLoopController,
    GauntletFeedbackController,
    LossWatch,
    ModelPerformanceWatchdog,
)
from daemons.spec import DaemonSpec

DAEMON = DaemonSpec(
    "feedback",
    "runs the feedback controllers",
    (
        FeedbackLoopController,
        GauntletFeedbackController,
        EvaluationFeedbackHandler,
        CurriculumIntegration,
        ModelPerformanceWatchdog,
        LossWatch,
    ),
)
