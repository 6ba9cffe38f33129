"""The status as tables, with as many columns as fit."""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from rich.table import Table
from rich.text import Text

from flyball.app.status.status import ConfigStatus, DaemonStatus, Status
from flyball.app.status.summary import UNKNOWN, short, show_against, show_age, show_elo, show_progress

STATE_STYLES = {
    "ready": "green",
    "started": "yellow",
    "degraded": "red",
    "quarantined": "red",
    "silent": "red",
    "failed": "bold red",
    "gone": "bold red",
    "stopped": "dim",
}
GAP = 2
"""Number of blanks between columns."""

R = TypeVar("R")


class Column(NamedTuple, Generic[R]):
    """A column that a narrow table may leave out.

    Attributes:
        name: the heading.
        cell: returns the content in a row.
        need: importance; the column with the lowest is left out first.
        right: whether the column is right-justified.
        enough: width at which longer texts may wrap; ``None``: never wrap.
    """

    name: str
    cell: Callable[[R], str | Text]
    need: int
    right: bool = False
    enough: int | None = None


def _figure(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def _decision(config: ConfigStatus) -> str:
    decision = config.last_decision
    return f"{decision.name} {show_age(decision.age_seconds)} ago ({short(decision.id)})" if decision else UNKNOWN


def _jobs(daemon: DaemonStatus) -> str:
    return f"{_figure(daemon.jobs)}/{daemon.capacity}" if daemon.capacity else ""


def _state(config: ConfigStatus) -> Text:
    """Return obstacles to a configuration's training, its plateau, and its exploration boost."""
    states = [Text("blocked", "bold red")] if config.blocked is not None else []
    states += [Text("paused", "red")] if config.paused else []
    states += [Text(f"diverged {config.diverged} x", "red")] if config.diverged else []
    states += [Text("plateaued", "yellow")] if config.plateaued else []
    states += [Text(f"boosted {config.boost:.3g}", "yellow")] if config.boost is not None else []
    return Text(", ").join(states)


CONFIGS: tuple[Column[ConfigStatus], ...] = (
    Column("configuration", lambda config: config.key, 12),
    Column("state", _state, 10),
    Column("games", lambda config: f"{config.games:,}", 4, right=True),
    Column("games/s", lambda config: _figure(config.games_per_second), 6, right=True),
    Column("step", lambda config: _figure(config.step), 7, right=True),
    Column("champion's Elo", lambda config: show_elo(config.elo, config.elo_stderr), 11, right=True),
    Column(
        "last rated v. random",
        lambda config: show_against(config.win_rate_random, config.outcome_random),
        2,
        right=True,
    ),
    Column("last rated v. past champion", lambda config: show_progress(config.progress), 3, right=True),
    Column("loops", lambda config: str(config.loops), 5, right=True),
    Column("+/-", lambda config: f"{config.promotions}/{config.rejections}", 9, right=True),
    Column("rollbacks", lambda config: str(config.rollbacks), 3, right=True),
    Column("last decision", _decision, 1),
)
DAEMONS: tuple[Column[DaemonStatus], ...] = (
    Column("daemon", lambda daemon: daemon.daemon, 10),
    Column("node", lambda daemon: daemon.node, 6),
    Column("state", lambda daemon: Text(daemon.state, STATE_STYLES[daemon.state]), 9),
    Column("heard", lambda daemon: f"{show_age(daemon.heard_seconds_ago)} ago", 5),
    Column("restarts", lambda daemon: str(daemon.restarts), 7, right=True),
    Column("behind", lambda daemon: _figure(daemon.lag), 4, right=True),
    Column("jobs", _jobs, 3, right=True),
    Column("error", lambda daemon: daemon.error or "", 8, enough=30),
)


def status_table(status: Status, width: int | None = None) -> Table:
    """Return a table with a row for each configuration. It is no wider than ``width`` if possible."""
    return _table(CONFIGS, status.configs, width)


def daemons_table(status: Status, width: int | None = None) -> Table:
    """Return a table with a row for each daemon. It is no wider than ``width`` if possible."""
    return _table(DAEMONS, status.daemons, width)


def next_trainings(status: Status, most: int | None = None) -> list[Text]:
    """Return a line for each configuration whose next training waits, and for what; at most ``most`` lines."""
    waiting = [config for config in status.configs if config.next_training]
    width = max((len(config.key) for config in waiting), default=0)
    lines = [
        Text(f"{config.key:<{width}}  next training: {config.next_training}", no_wrap=True, overflow="ellipsis")
        for config in waiting
    ]
    if most is None or len(lines) <= most:
        return lines
    shown = max(0, most - 1)
    return [*lines[:shown], Text(f"… {len(lines) - shown} next trainings: flyball status", "dim")][: max(0, most)]


def fitting(columns: Sequence[Column[R]], rows: Sequence[R], width: int | None) -> list[Column[R]]:
    """Return the columns that fit into a width. The least important ones are left out first."""
    shown = list(columns)
    while width is not None and len(shown) > 1 and _width(shown, rows) > width:
        shown.remove(min(shown, key=lambda column: column.need))
    return shown


def _table(columns: Sequence[Column[R]], rows: Sequence[R], width: int | None) -> Table:
    shown = fitting(columns, rows, width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP // 2), header_style="bold")
    for column in shown:
        table.add_column(column.name, justify="right" if column.right else "left", no_wrap=column.enough is None)
    for row in rows:
        table.add_row(*(_text(column.cell(row)) for column in shown))
    return table


def _width(columns: Sequence[Column[R]], rows: Sequence[R]) -> int:
    """Return the width of a table with these columns."""
    total = GAP * (len(columns) - 1)
    for column in columns:
        widest = max(text.cell_len for text in (Text(column.name), *(_text(column.cell(row)) for row in rows)))
        total += widest if column.enough is None else min(column.enough, widest)
    return total


def _text(cell: str | Text) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)
