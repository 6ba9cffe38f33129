"""The training trigger: requests a training once there are enough fresh rows."""

from flyball.app.controllers import TrainingTrigger
from flyball.daemons.spec import DaemonSpec

DAEMON = DaemonSpec("training_trigger", "decides when a configuration trains", (TrainingTrigger,))
