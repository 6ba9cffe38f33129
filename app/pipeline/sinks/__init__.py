"""Sinks of a run: TensorBoard, a CSV log, Weights & Biases."""

from app.pipeline.sinks.board import TensorBoardSink
from app.pipeline.sinks.csv_log import COLUMNS, SEED, CsvLog, ForeignLog, read_log
from app.pipeline.sinks.scalars import histograms, scalars
from app.pipeline.sinks.wandb import NoWandb, WandbSink, loaded_wandb

__all__ = [
    "COLUMNS",
    "SEED",
    "CsvLog",
    "ForeignLog",
    "NoWandb",
    "TensorBoardSink",
    "WandbSink",
    "histograms",
    "loaded_wandb",
    "read_log",
    "scalars",
]
