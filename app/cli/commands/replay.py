"""``flyball replay``: publish recorded events again."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import click

from app.bus import Bus
from app.cli.bus import connected
from app.cli.output import note, write_event, write_json
from app.cli.place import Place, json_option, placed
from app.cli.selecting import check_config, complete_types, open_journal, select
from app.events import Envelope, Event, Payload, follow
from app.runtime.clock import SystemClock

MICROSECONDS = 1_000_000


@click.command()
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...", shell_complete=complete_types)
@click.option("--from", "first", default=1, show_default=True, type=click.IntRange(1), help="First position.")
@click.option("--to", "last", type=click.IntRange(1), help="Last position  [default: the present end]")
@click.option("--config-key", help="Only events about this configuration.")
@click.option("--speed", type=click.FloatRange(0, min_open=True), help="1: as it was, 10: ten times as fast.")
@click.option("--reason", help="Why; part of the new events' ids. Needed with --yes.")
@click.option("--yes", is_flag=True, help="Do it; otherwise show what would be published.")
@click.option("--timeout", default=10.0, show_default=True, type=click.FloatRange(0, min_open=True), help="Seconds.")
@json_option
@placed
def replay(
    place: Place,
    patterns: tuple[str, ...],
    *,
    first: int,
    last: int | None,
    config_key: str | None,
    speed: float | None,
    reason: str | None,
    yes: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Publish recorded events again: as new events, each caused by its original.

    Their ids follow from the original and the reason: the same replay done twice is recorded once.
    """
    if yes and not reason:
        raise click.UsageError("Say why: --reason is needed with --yes.")
    selection = select(patterns, config_key)
    with open_journal(place) as reader:
        check_config(reader, config_key)
        end = reader.head if last is None else min(last, reader.head)
        chosen = takewhile(lambda event: event.sequence <= end, selection.read(reader, after=first - 1))
        if yes and reason:
            asyncio.run(_replay(place, chosen, reason, speed, timeout, as_json=as_json))
        else:
            _preview(chosen, as_json=as_json)


def _preview(events: Iterator[Event[Any]], *, as_json: bool) -> None:
    counts: Counter[str] = Counter()
    for event in events:
        write_event(event, as_json=as_json)
        counts[event.data.seed_name] += 1
    listed = ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "nothing"
    note(f"Would publish again: {listed}. To do it, add --yes and --reason.")


async def _replay(
    place: Place, events: Iterator[Event[Any]], reason: str, speed: float | None, deadline_s: float, *, as_json: bool
) -> None:
    before: int | None = None
    async with connected(place, place.load(), deadline_s) as bus:
        for event in events:
            if speed is not None and before is not None:
                await asyncio.sleep((event.recorded_us - before) / MICROSECONDS / speed)
            before = event.recorded_us
            await _publish(bus, event, reason, as_json=as_json)


async def _publish(bus: Bus, event: Event[Any], reason: str, *, as_json: bool) -> None:
    envelope = again(event, reason)
    position = await bus.publish(envelope)
    if as_json:
        write_json({"position": position, "id": envelope.id, "original": event.id})
    else:
        click.echo(f"{position} {envelope.id} {event.data.seed_name} after {event.sequence}")


def again(event: Event[Any], reason: str) -> Envelope[Payload]:
    """Return an event's data as a new event that its original caused; the same reason gives the same id."""
    return follow(event.data, event.cause, by=f"replay:{reason}", time=SystemClock().now())
