"""``flyball tail``: recorded events, and new ones as they come."""

import asyncio
from contextlib import suppress

import click

from app.api.runs import Place, check_config, connected, open_journal
from app.api.selection import Selection, before_last, before_since, select
from app.cli.options import complete_types, config_key_option, json_option, placed
from app.cli.output import complain, write_event

DEFAULT_COUNT = 20
FOLLOW_DEADLINE_S = 10.0


@click.command()
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...", shell_complete=complete_types)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@click.option("-n", "--count", type=click.IntRange(0), help=f"The last N  [default: {DEFAULT_COUNT}, or all --since]")
@click.option("--since", help="A position, a while (10m, 2h) or a time (ISO 8601).")
@config_key_option
@json_option
@placed
def tail(
    place: Place,
    patterns: tuple[str, ...],
    *,
    follow: bool,
    count: int | None,
    since: str | None,
    config_key: str | None,
    as_json: bool,
) -> None:
    """Show events whose event name or type matches a glob PATTERN.

    Examples: 'TRAINING_*', 'evaluation.*', MODEL_PROMOTED.
    """
    selection = select(patterns, config_key)
    with open_journal(place) as reader:
        check_config(reader, config_key)
        end = reader.head  # later events are left to --follow, otherwise -n N could show more than N
        start = before_since(reader, since) if since else 0
        if count is not None or since is None:
            start = max(start, before_last(reader, DEFAULT_COUNT if count is None else count, selection, end))
        for event in selection.read(reader, after=start, on_dead=complain):
            if event.sequence > end:
                break
            write_event(event, as_json=as_json)
    if follow:
        with suppress(KeyboardInterrupt):
            asyncio.run(_follow(place, selection, max(end, start), as_json=as_json))


async def _follow(place: Place, selection: Selection, after: int, *, as_json: bool) -> None:
    async with (
        connected(place, FOLLOW_DEADLINE_S) as bus,
        bus.subscribe(selection.types, after=after) as subscription,
    ):
        async for batch in subscription:
            for event in batch.events:
                if selection.config_key in (None, event.subject):
                    write_event(event, as_json=as_json)
