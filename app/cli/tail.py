"""``flyball tail``: recorded events, and new ones as they come."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import click

from flyball.app.api.runs import (
    NotRunning,
    RunLocation,
    check_config,
    check_listening,
    connected,
    find_broker,
    open_journal,
    settings_shown,
)
from flyball.app.api.selection import Selection, before_last, before_since, select
from flyball.app.cli.options import complete_types, config_key_option, json_option, run_options
from flyball.app.cli.output import complain, write_event
from flyball.app.events import Event
from flyball.daemons.run_folder import is_held

Shows = Callable[[Event[Any]], None]
"""Shows an event."""

DEFAULT_COUNT = 20
FOLLOW_DEADLINE_S = 10.0
LOOK_SECONDS = 1.0
RESTART_SECONDS = 15.0
"""Longest time without a broker in a run that no `up` supervises, as systemd starts a broker again in seconds."""


@click.command()
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...", shell_complete=complete_types)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@click.option("-n", "--count", type=click.IntRange(0), help=f"The last N  [default: {DEFAULT_COUNT}, or all --since]")
@click.option("--since", help="A position, a while (10m, 2h) or a time (ISO 8601).")
@config_key_option
@json_option
@run_options
def tail(
    location: RunLocation,
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
    with open_journal(location) as reader:
        check_config(reader, config_key)
        settings = settings_shown(reader)
        end = reader.head  # later events are left to --follow, otherwise -n N could show more than N
        start = before_since(reader, since) if since else 0
        if count is not None or since is None:
            start = max(start, before_last(reader, DEFAULT_COUNT if count is None else count, selection, end))
        for event in selection.read(reader, after=start, on_dead=complain):
            if event.sequence > end:
                break
            write_event(event, as_json=as_json, settings=settings)
    if follow:
        with suppress(KeyboardInterrupt):
            show_event = partial(write_event, as_json=as_json, settings=settings)
            asyncio.run(_follow(location, selection, max(end, start), show_event))


async def _follow(location: RunLocation, selection: Selection, after: int, show_event: Shows) -> None:
    """Show new events until the run has ended. Then raises ``NotRunning``."""
    endpoint = check_listening(location)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_show(location, selection, after, show_event))
            await _wait_for_end(location)
            raise NotRunning(f"No broker listens at {endpoint} any more: the run has ended.")
    except ExceptionGroup as failed:  # it holds one error, which decides the exit code
        raise failed.exceptions[0] from None


async def _show(location: RunLocation, selection: Selection, after: int, show_event: Shows) -> None:
    async with (
        connected(location, FOLLOW_DEADLINE_S) as bus,
        bus.subscribe(selection.types, after=after) as subscription,
    ):
        async for batch in subscription:
            for event in batch.events:
                if selection.config_key in (None, event.subject):
                    show_event(event)


async def _wait_for_end(location: RunLocation) -> None:
    """Wait until a run has ended: no broker listens, and no supervisor will start one."""
    deployment = location.load().deployment
    supervised, last_heard = False, asyncio.get_running_loop().time()
    while True:
        held = is_held(location.folder)
        supervised = supervised or held
        now = asyncio.get_running_loop().time()
        if held or (await asyncio.to_thread(find_broker, location.folder, deployment)).listens:
            last_heard = now
        elif supervised or now - last_heard >= RESTART_SECONDS:
            return
        await asyncio.sleep(LOOK_SECONDS)
