"""Structured logs after OpenTelemetry's data model, and training curves."""

from flyball.app.telemetry.curves import Curves, TensorBoardCurves, TensorBoardFile, points
from flyball.app.telemetry.figures import FIGURE_FORMATS, NoPlots, drawn
from flyball.app.telemetry.logs import FAILED, LogFile, configure, last_records, records_in
from flyball.app.telemetry.run_curves import RunCurves
from flyball.app.telemetry.trackers import MlflowTracker, Tracker, WandbTracker
from flyball.app.telemetry.wandb_runs import NoWandb, WandbRun, check_wandb
