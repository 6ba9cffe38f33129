"""Read models on a terminal."""

from collections import Counter
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from app.dashboard.status import ConfigStatus, Status
from app.dashboard.summary import UNKNOWN, short, show_elo, show_rate, summarise
from app.dashboard.trace import Node, Trace
from app.events import Event, Kind

STYLES = {Kind.FACT: "cyan", Kind.REQUEST: "yellow", Kind.DECISION: "bold magenta"}
STATE_STYLES = {"ready": "green", "started": "yellow", "silent": "red", "failed": "bold red", "stopped": "dim"}
COLUMNS = ("configuration", "games", "games/s", "step", "Elo", "win rate v. random", "loops", "+/-", "last decision")


def status_table(status: Status) -> Table:
    """Return a table with a row for each configuration."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("configuration", "last decision") else "right")
    for config in status.configs:
        table.add_row(*_cells(config))
    return table


def _cells(config: ConfigStatus) -> tuple[str, ...]:
    decision = config.last_decision
    rate = config.games_per_second
    return (
        config.key,
        f"{config.games:,}",
        UNKNOWN if rate is None else f"{rate:,.0f}",
        UNKNOWN if config.step is None else str(config.step),
        show_elo(config.elo, config.elo_stderr),
        show_rate(config.win_rate_random),
        str(config.loops),
        f"{config.promotions}/{config.rejections}",
        f"{decision.name} {show_age(decision.age_seconds)} ago ({short(decision.id)})" if decision else UNKNOWN,
    )


def show_age(seconds: float) -> str:
    """Return a duration in the unit that suits it."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def daemons_text(status: Status) -> Text:
    """Return one line with all daemons, coloured by state; what is unusual is said in words."""
    text = Text()
    for daemon in status.daemons:
        text.append("● ", STATE_STYLES[daemon.state])
        text.append(daemon.daemon)
        notes: list[str] = [daemon.state] if daemon.state != "ready" else []
        notes += [f"{daemon.restarts} restarts"] if daemon.restarts else []
        notes += [f"{daemon.lag} behind"] if daemon.lag else []
        notes += [f"{daemon.jobs}/{daemon.capacity}"] if daemon.capacity else []
        text.append(f" ({', '.join(notes)})  " if notes else "  ", "dim")
    return text


def daemons_table(status: Status) -> Table:
    """Return a table with a row for each daemon."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("daemon", "node", "state", "heard", "restarts", "behind", "jobs", "error"):
        table.add_column(name, justify="right" if name in ("restarts", "behind", "jobs") else "left")
    for daemon in status.daemons:
        table.add_row(
            daemon.daemon,
            daemon.node,
            Text(daemon.state, STATE_STYLES[daemon.state]),
            f"{show_age(daemon.heard_seconds_ago)} ago",
            str(daemon.restarts),
            UNKNOWN if daemon.lag is None else str(daemon.lag),
            f"{daemon.jobs}/{daemon.capacity}",
            escape(daemon.error or ""),
        )
    return table


def state_counts(status: Status) -> str:
    """Return how many daemons are in each state."""
    counts = Counter(daemon.state for daemon in status.daemons)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none heard of"


def event_text(event: Event[Any]) -> Text:
    """Return an event in one line: name, configuration, and what it says."""
    text = Text(event.data.seed_name, STYLES[event.data.kind])
    if event.subject:
        text.append(f" {event.subject}", "blue")
    return text.append(f"  {summarise(event.data)}", "default")


def trace_tree(trace: Trace) -> Tree:
    """Return causes and effects as a tree; the event asked for stands out."""
    first = trace.nodes[0]
    start_us = next(node.event.recorded_us for node in trace.nodes if node.event.id == trace.id)
    root = Tree(_node_text(first, trace.id, start_us))
    if trace.earlier:
        top = Tree(Text(f"… {trace.earlier} earlier causes", "dim"))
        top.children.append(root)
    path = [root]
    for node in trace.nodes[1:]:
        del path[node.level :]
        path.append(path[-1].add(_node_text(node, trace.id, start_us)))
    return top if trace.earlier else root


def _node_text(node: Node, wanted: str, start_us: int) -> Text:
    event = node.event
    text = Text("▶ " if event.id == wanted else "").append_text(event_text(event))
    text.append(f"  {short(event.id)}  {(event.recorded_us - start_us) / 1000:+.1f} ms", "dim")
    return text.append(f"  … {node.hidden} more effects", "dim") if node.hidden else text


def trace_json(trace: Trace) -> list[dict[str, Any]]:
    """Return the events of a trace as CloudEvents, each with its level and how many effects are not shown."""
    return [node.event.to_cloudevent() | {"level": node.level, "hidden": node.hidden} for node in trace.nodes]
