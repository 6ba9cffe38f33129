"""The curves daemon, which writes training and evaluation curves for TensorBoard, and to Weights & Biases."""

from flyball.app.telemetry import RunCurves
from flyball.daemons.spec import DaemonSpec

DAEMON = DaemonSpec("curves", "draws the curves of training and evaluation", sink=RunCurves)
