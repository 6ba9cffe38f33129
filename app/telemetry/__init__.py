"""Structured logs after OpenTelemetry's data model, and training curves."""

from app.telemetry.curves import Board, TensorBoardCurves, points
from app.telemetry.figures import FIGURE_FORMATS, NoPlots, drawn
from app.telemetry.logs import LogFile, configure
