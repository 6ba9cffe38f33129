"""Structured logs after OpenTelemetry's data model, and training curves."""

from app.telemetry.curves import CURVES, Board, Point, TensorBoardCurves, points
from app.telemetry.figures import FIGURE_FORMATS, NoPlots, drawn
from app.telemetry.logs import LogFile, configure
