"""Structured logs after OpenTelemetry's data model, and training curves."""

from app.telemetry.board import Board
from app.telemetry.curves import CURVES, Point, points
from app.telemetry.figures import FIGURE_FORMATS, NoPlots, drawn
from app.telemetry.logs import configure
from app.telemetry.sink import LogFile
from app.telemetry.tensorboard import TensorBoardCurves

__all__ = [
    "CURVES",
    "FIGURE_FORMATS",
    "Board",
    "LogFile",
    "NoPlots",
    "Point",
    "TensorBoardCurves",
    "configure",
    "drawn",
    "points",
]
