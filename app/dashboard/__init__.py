"""Read models for people: status of a run, cause and effect of its events."""

from app.dashboard.status import READS, Board, ConfigStatus, DaemonStatus, Status
from app.dashboard.summary import short, summarise
from app.dashboard.trace import AmbiguousEvent, Node, Trace, UnknownEvent, trace
from app.dashboard.views import (
    daemons_table,
    daemons_text,
    event_text,
    show_age,
    state_counts,
    status_table,
    trace_json,
    trace_tree,
)

__all__ = [
    "READS",
    "AmbiguousEvent",
    "Board",
    "ConfigStatus",
    "DaemonStatus",
    "Node",
    "Status",
    "Trace",
    "UnknownEvent",
    "daemons_table",
    "daemons_text",
    "event_text",
    "short",
    "show_age",
    "state_counts",
    "status_table",
    "summarise",
    "trace",
    "trace_json",
    "trace_tree",
]
