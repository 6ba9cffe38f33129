"""``flyball events``: the catalogue, and the graph of events."""

import json
import sys
from inspect import getdoc
from typing import Literal

import click

from flyball.app.api.runs import RunLocation
from flyball.app.cli.options import complete_types, json_option, run_options
from flyball.app.cli.output import echo, write_row
from flyball.app.cli.streams import shows_all
from flyball.app.events import CATALOGUE, resolve


@click.group()
def events() -> None:
    """List event types, show a schema, or draw the graph of events."""


@events.command(name="list")
@json_option
def list_types(*, as_json: bool) -> None:
    """List all event types: event name, type, kind, scope."""
    for payload in CATALOGUE:
        row = {
            "name": payload.event_name,
            "type": payload.event_type,
            "kind": payload.kind.value,
            "scope": payload.scope.value,
            "version": payload.dataversion,
            "description": getdoc(payload),
        }
        write_row(row, "{name:<28} {type:<42} {kind:<9} {scope}".format(**row), as_json=as_json)


@events.command()
@click.argument("type_name", metavar="TYPE", shell_complete=complete_types)
@click.option("--whole", is_flag=True, help="Of the whole CloudEvent, not only its data.")
def schema(type_name: str, *, whole: bool) -> None:
    """Print the JSON Schema of the data of events of TYPE."""
    from flyball.app.events.schemas import envelope_schema

    payload = resolve(type_name)
    document = envelope_schema(payload) if whole else payload.model_json_schema()
    echo(json.dumps(document, indent=2, ensure_ascii=not shows_all(sys.stdout)))


@events.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot", "json"]),
    default="mermaid",
    help="Language.",
)
@click.option("--compact", is_flag=True, help="Only requests, decisions and main facts.")
@run_options
def graph(location: RunLocation, form: Literal["mermaid", "dot", "json"], *, compact: bool) -> None:
    """Draw the graph of events.

    It shows daemons, the reducers in them, and the event types that they emit and read.
    """
    from flyball.daemons import graph as drawing

    settings = location.load().run
    echo(drawing.render(drawing.compact(settings) if compact else drawing.whole(settings), form), nl=False)
