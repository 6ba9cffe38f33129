"""Sinks and final report of ``flyball train``."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from app.cli.output import note
from app.core import reading
from app.pipeline import Evaluation, RunHead, RunPlace, RunState, Sink
from app.pipeline.report import REPORT, draw_curves, judged, summary_text, write_report
from app.pipeline.sinks import CsvLog, TensorBoardSink, WandbSink, loaded_wandb, read_log
from app.runtime.clock import SystemClock, boot_id
from app.telemetry import NoPlots

BOARD = "tensorboard"


def check_sinks(place: RunPlace, head: RunHead) -> None:
    """Make sure, before a run begins or goes on, that it can tell what it does where it is asked to.

    Raises ``NoWandb``, ``ForeignLog`` or ``UnusableFile``.
    """
    if head.settings.logging.wandb != "off":
        loaded_wandb()
    if log := log_of(place, head):
        with reading(log):
            read_log(log)


@contextmanager
def open_sinks(place: RunPlace, head: RunHead) -> Iterator[list[Sink]]:
    """Open what the settings ask for, and close it at the end."""
    logging, clock = head.settings.logging, SystemClock()
    told = head.model_dump(mode="json")
    sinks: list[Sink] = []
    if logging.tensorboard:
        sinks.append(TensorBoardSink(place.path / BOARD, told, clock))
    if log := log_of(place, head):
        sinks.append(CsvLog(log, clock))
    if logging.wandb != "off":
        name = f"{head.config}-{head.seed}"
        sinks.append(WandbSink(place.path, name, boot_id(), told, logging.wandb))
    with ExitStack() as stack:
        for sink in sinks:
            stack.enter_context(closing(sink))
        yield sinks


def log_of(place: RunPlace, head: RunHead) -> Path | None:
    """Return where the run's log is; None where it keeps none."""
    name = head.settings.logging.csv_log
    return place.path / name if name else None


def report(place: RunPlace, head: RunHead, state: RunState, finals: Sequence[Evaluation], players: int) -> str:
    """Write the final report and the curves into the run's folder, and return the summary in it."""
    log, curves = log_of(place, head), False
    summary = summary_text(head, state, [judged(found, players) for found in finals], read_log(log) if log else [])
    try:
        curves = log is not None and draw_curves(place.path, log)
    except NoPlots as error:
        note(f"No curves were drawn: {error} {error.hint}")
    write_report(place.path, head, summary, curves=curves)
    note(f"The report: {place.path / REPORT}")
    return summary
