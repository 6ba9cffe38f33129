"""The feedback daemon, whose controllers set training and self-play parameters, or watch models and losses."""

from flyball.app.controllers import (
    CurriculumIntegration,
    EvaluationFeedbackHandler,
    FeedbackLoopController,
    GauntletFeedbackController,
    LossWatch,
    ModelPerformanceWatchdog,
)
from flyball.daemons.spec import DaemonSpec

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
    hosts_own=True,
)
