"""Read models for people: status of a run, cause and effect of its events."""

from app.dashboard.league import LEAGUES_READ, LeagueView, read_leagues
from app.dashboard.league_figure import draw_league
from app.dashboard.snapshot import load_board, save_board
from app.dashboard.status import READS, Board, BoardState, ConfigStatus, DaemonStatus, Status
from app.dashboard.summary import short, show_age, show_progress, summarise
from app.dashboard.tables import daemons_table, status_table
from app.dashboard.trace import AmbiguousEvent, Node, Trace, UnknownEvent, trace
from app.dashboard.views import daemons_text, event_text, state_counts, trace_json, trace_tree, waiting_lines

__all__ = [
    "LEAGUES_READ",
    "READS",
    "AmbiguousEvent",
    "Board",
    "BoardState",
    "ConfigStatus",
    "DaemonStatus",
    "LeagueView",
    "Node",
    "Status",
    "Trace",
    "UnknownEvent",
    "daemons_table",
    "daemons_text",
    "draw_league",
    "event_text",
    "load_board",
    "read_leagues",
    "save_board",
    "short",
    "show_age",
    "show_progress",
    "state_counts",
    "status_table",
    "summarise",
    "trace",
    "trace_json",
    "trace_tree",
    "waiting_lines",
]
