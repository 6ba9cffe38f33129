"""Structured logs after OpenTelemetry's data model, and training curves."""

from app.telemetry.curves import Curves, TensorBoardCurves, TensorBoardFile, points
from app.telemetry.figures import FIGURE_FORMATS, NoPlots, drawn
from app.telemetry.logs import FAILED, LogFile, configure, last_records, records_in
from app.telemetry.run_curves import RunCurves
from app.telemetry.trackers import MlflowTracker, Tracker, WandbTracker
from app.telemetry.wandb_runs import NoWandb, WandbRun, check_wandb
