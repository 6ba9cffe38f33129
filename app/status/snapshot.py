"""A board as a file beside the journal: whoever looks again reads on from there.

It is a copy of what the journal says and nothing else depends on it: one that is damaged, of another version or of
another journal counts as missing.
"""

import json
import os
from collections import Counter
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.columns import Columns
from rich.text import Text
from rich.tree import Tree

from app.events import Event, EventVoided, Kind
from app.journal import JournalReader, history
from app.status.status import READS, Board, BoardState, DaemonStatus, Status
from app.status.summary import short, summarise
from app.status.tables import STATE_STYLES
from app.status.trace import Node, Trace

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
    text = Text(event.data.event_name, STYLES[event.data.kind])
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


FORMAT = 2
"""To be raised when a fold changes its mind about events that it has counted."""


def save_board(path: Path, board: Board) -> None:
    """Replace the snapshot, whole or not at all.

    Raises:
        OSError: it can't be written.
    """
    state = board.state().model_dump_json()
    document = {"made_by": _maker(), "sha256": sha256(state.encode()).hexdigest(), "state": state}
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(document), encoding="utf-8")
    scratch.replace(path)


def load_board(path: Path, reader: JournalReader) -> Board:
    """Return the board of the snapshot if it belongs to the journal, else an empty one."""
    state = _read(path)
    return Board(state) if state is not None and _belongs(state, reader) else Board()


def _read(path: Path) -> BoardState | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        state = document["state"]
        if document["made_by"] != _maker() or document["sha256"] != sha256(state.encode()).hexdigest():
            return None
        return BoardState.model_validate_json(state)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError):
        return None


def _belongs(state: BoardState, reader: JournalReader) -> bool:
    """Return whether the journal still holds the last counted event, and no event was voided since."""
    if not reader.landmark(EventVoided.event_type) <= state.position <= reader.head or not state.position:
        return False
    event: Event[Any] | None = next(history(reader, after=state.position - 1, on_dead=lambda _: None), None)
    return event is not None and (event.sequence, event.id) == (state.position, state.event_id)


def _maker() -> str:
    """Name what the rows depend on besides the events: the code, and which events it reads."""
    names = sorted(f"{payload.event_type} {payload.dataversion}" for payload in READS)
    return f"flyball {version('flyball')} {FORMAT} {sha256(' '.join(names).encode()).hexdigest()[:16]}"
