"""The training trigger: requests a training once there are enough fresh rows."""

from app.controllers import TrainingTrigger
from daemons.spec import DaemonSpec

DAEMON = DaemonSpec("training_trigger", "decides when a configuration trains", (TrainingTrigger,))
