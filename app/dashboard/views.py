"""Read models on a terminal."""

from collections import Counter
from typing import Any

from rich.columns import Columns
from rich.text import Text
from rich.tree import Tree

from app.dashboard.status import DaemonStatus, Status
from app.dashboard.summary import short, summarise
from app.dashboard.tables import STATE_STYLES
from app.dashboard.trace import Node, Trace
from app.events import Event, Kind

STYLES = {Kind.FACT: "cyan", Kind.REQUEST: "yellow", Kind.DECISION: "bold magenta"}


def daemons_text(status: Status) -> Columns:
    """Return all daemons side by side, coloured by state; what is unusual is said in words."""
    return Columns([_daemon_text(daemon) for daemon in status.daemons], padding=(0, 2))


def _daemon_text(daemon: DaemonStatus) -> Text:
    text = Text("● ", STATE_STYLES[daemon.state], no_wrap=True)
    text.append(daemon.daemon, "default")
    notes: list[str] = [daemon.state] if daemon.state != "ready" else []
    notes += [f"{daemon.restarts} restarts"] if daemon.restarts else []
    notes += [f"{daemon.lag} behind"] if daemon.lag else []
    notes += [f"{daemon.jobs}/{daemon.capacity}"] if daemon.capacity else []
    return text.append(f" ({', '.join(notes)})", "dim") if notes else text


def state_counts(status: Status) -> str:
    """Return how many daemons are in each state."""
    counts = Counter(daemon.state for daemon in status.daemons)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none heard of"


def waiting_lines(status: Status) -> list[Text]:
    """Return a line for each configuration that waits for something."""
    return [Text(f"{config.key}: {config.waiting_for}") for config in status.configs if config.waiting_for]


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
