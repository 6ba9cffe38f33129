"""``flyball trace``: cause and effect."""

import click

from app.cli.options import Place, json_option, placed
from app.cli.output import show, write_json
from app.cli.selection import Selection, open_journal
from app.status.snapshot import trace_json, trace_tree
from app.status.trace import trace as find_trace

EVERYTHING = Selection(None, None)
NO_BOUND = 1 << 62


@click.command()
@click.argument("event_id", metavar="ID")
@click.option("--causes", default=8, show_default=True, type=click.IntRange(0), help="Generations before it.")
@click.option("--effects", default=6, show_default=True, type=click.IntRange(0), help="Generations after it.")
@click.option("--all", "everything", is_flag=True, help="Everything, from the first cause on.")
@json_option
@placed
def trace(place: Place, event_id: str, *, causes: int, effects: int, everything: bool, as_json: bool) -> None:
    """Show what led to the event whose id begins with ID, and what came of it. Times are relative to it."""
    if not event_id:
        raise click.BadParameter("write an id, or its beginning.", param_hint="ID")
    if everything:
        causes = effects = NO_BOUND
    with open_journal(place) as reader:
        found = find_trace(lambda: EVERYTHING.read(reader), event_id, causes=causes, effects=effects)
    if as_json:
        write_json({"id": found.id, "earlier": found.earlier, "events": trace_json(found)})
    else:
        show(trace_tree(found))
