"""``flyball trace``: the causes and effects of an event."""

from typing import Any

import click
from rich.text import Text
from rich.tree import Tree

from flyball.app.api.runs import RunLocation, open_journal, settings_shown
from flyball.app.api.selection import Selection
from flyball.app.cli.options import json_option, run_options
from flyball.app.cli.output import complain, show, write_json
from flyball.app.config import RunSettings
from flyball.app.controllers.emitters import emitter_of
from flyball.app.status.summary import event_text, short, show_offset
from flyball.app.status.trace import Trace, TracedEvent
from flyball.app.status.trace import trace as find_trace

NO_BOUND = 1 << 62


@click.command()
@click.argument("event_id", metavar="ID")
@click.option("--causes", default=8, type=click.IntRange(0), help="Generations before it.")
@click.option("--effects", default=6, type=click.IntRange(0), help="Generations after it.")
@click.option("--all", "everything", is_flag=True, help="Everything, from the first cause on.")
@json_option
@run_options
def trace(location: RunLocation, event_id: str, *, causes: int, effects: int, everything: bool, as_json: bool) -> None:
    """Show what led to an event, and what came of it.

    ID is the event's position, which flyball tail shows, or its id or the beginning of that; or that of a model's hash,
    for the training that made it. Times are relative to the event.
    """
    if not event_id:
        raise click.BadParameter("write an id, or its beginning.", param_hint="ID")
    if everything:
        causes = effects = NO_BOUND
    with open_journal(location) as reader:
        everywhere, settings = Selection(None, None), settings_shown(reader)
        event_trace = find_trace(
            lambda: everywhere.read(reader, reader.first - 1, on_dead=complain),
            event_id,
            causes=causes,
            effects=effects,
        )
    if as_json:
        write_json({"id": event_trace.id, "earlier": event_trace.earlier, "events": trace_json(event_trace, settings)})
    else:
        show(trace_tree(event_trace, settings))


def trace_tree(trace: Trace, settings: RunSettings | None = None) -> Tree:
    """Return causes and effects as a tree that marks the requested event.

    ``settings`` name user-defined controllers.
    """
    start_us = next(node.event.recorded_us for node in trace.nodes if node.event.id == trace.id)
    root = Tree(_node_text(trace.nodes[0], trace.id, start_us, settings))
    path = [root]
    for node in trace.nodes[1:]:
        del path[node.level :]
        path.append(path[-1].add(_node_text(node, trace.id, start_us, settings)))
    if not trace.earlier:
        return root
    top = Tree(Text(f"… {trace.earlier} earlier causes", "dim"))
    top.children.append(root)
    return top


def _node_text(node: TracedEvent, traced_id: str, start_us: int, settings: RunSettings | None) -> Text:
    event = node.event
    text = Text("▶ " if event.id == traced_id else "").append_text(event_text(event, settings))
    text.append(f"  {short(event.id)}  {show_offset(event.recorded_us - start_us)}", "dim")
    effects = "effect" if node.hidden == 1 else "effects"
    return text.append(f"  … {node.hidden} more {effects}", "dim") if node.hidden else text


def trace_json(trace: Trace, settings: RunSettings | None = None) -> list[dict[str, Any]]:
    """Return the events of a trace as CloudEvents.

    Each has its level, its number of hidden effects, and who decided it: ``None`` for what workers and hosts report.
    """
    return [
        node.event.to_cloudevent()
        | {"level": node.level, "hidden": node.hidden, "by": emitter_of(node.event, settings) or None}
        for node in trace.nodes
    ]
