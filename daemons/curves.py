"""The curves daemon: writes training and evaluation curves as TensorBoard event files."""

from app.telemetry import TensorBoardCurves
from daemons.spec import DaemonSpec

DAEMON = DaemonSpec("curves", "draws the curves of training and evaluation", sink=TensorBoardCurves)
