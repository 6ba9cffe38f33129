"""``flyball emit``: publish events by hand."""

import asyncio
import sys
from pathlib import Path

import click

from flyball.app.api.publishing import (
    BadData,
    check_id,
    check_publishable,
    check_scope,
    payload_of,
    publish_on,
    with_whole_hashes,
)
from flyball.app.api.runs import RunLocation, connected
from flyball.app.cli.options import complete_types, json_option, run_options, timeout_option
from flyball.app.cli.output import note, write_json, write_row
from flyball.app.core import EventId, derive_id
from flyball.app.events import Envelope, Payload, check_traceparent, originate, resolve
from flyball.daemons.clock import SystemClock, boot_id


@click.command()
@click.argument("type_name", metavar="TYPE", shell_complete=complete_types)
@click.argument("data", default="{}")
@click.option("--config-key", help="The configuration the event is about.")
@click.option("--count", default=1, type=click.IntRange(1), help="How many, each with its own id.")
@click.option("--id", "event_id", help="The event's id. An id that is recorded already is not recorded again.")
@click.option(
    "--traceparent",
    envvar="TRACEPARENT",
    help="W3C trace context of the program that asks for it; what follows belongs to its trace.  [env: TRACEPARENT]",
)
@click.option("--dry-run", is_flag=True, help="Validate and print, don't publish.")
@timeout_option
@json_option
@run_options
def emit(
    location: RunLocation,
    type_name: str,
    data: str,
    *,
    config_key: str | None,
    count: int,
    event_id: str | None,
    traceparent: str | None,
    dry_run: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Publish an event of TYPE.

    TYPE is an event name such as EVALUATION_REQUESTED, or a type. DATA is the payload as JSON; @FILE reads it from a
    file, and - from stdin. A known model may be named by the beginning of its hash. Prints the position and the id of
    each event once it is durable.

    Decisions by hand, each with --config-key KEY:

    \b
      flyball emit ROLLBACK_REQUESTED '{"model": "HASH", "reason": "WHY"}'
      flyball emit EXPLORATION_BOOST '{"multiplier": 2, "lasts_seconds": 600, "reason": "WHY"}'
      flyball emit TRAINING_UNBLOCKED '{"reason": "WHY"}'
      flyball emit NODE_RELEASED '{"worker": "DAEMON@NODE", "reason": "WHY"}'  (without KEY)
      flyball emit HYPERPARAMETER_UPDATED '{"parameter": "learning_rate", "value": 1e-3, "previous": 1e-4,
                                            "reason": "WHY"}'

    HASH is that of the current model, as flyball state shows it. All types: flyball events list
    """
    kind = resolve(type_name)
    _check_usage(kind, event_id, count)
    payload = payload_of(kind, with_whole_hashes(location, kind, _text(data), note))
    check_scope(location, payload, config_key, event_id, note)
    boot, now = boot_id(), SystemClock().now()
    ids = [event_id or derive_id("cli", boot, number) for number in range(count)]
    trace = check_traceparent(traceparent) if traceparent else None
    envelopes = [
        originate(payload, event_id=EventId(new_id), time=now, subject=config_key, traceparent=trace) for new_id in ids
    ]
    if dry_run:
        for envelope in envelopes:
            write_json(envelope.attributes())
        return
    positions = asyncio.run(_publish(location, envelopes, timeout, own_id=event_id is not None))
    for position, envelope in zip(positions, envelopes, strict=True):
        write_row({"position": position, "id": envelope.id}, f"{position} {envelope.id}", as_json=as_json)


def _check_usage(kind: type[Payload], event_id: str | None, count: int) -> None:
    if event_id is not None and count > 1:
        raise click.UsageError("--id names one event: leave --count out.")
    check_id(event_id)
    check_publishable(kind)


async def _publish(
    location: RunLocation, envelopes: list[Envelope[Payload]], deadline_s: float, *, own_id: bool
) -> tuple[int, ...]:
    async with connected(location, deadline_s) as bus:
        return await publish_on(bus, envelopes, note, own_id=own_id)


def _text(data: str) -> str:
    if data == "-":
        return sys.stdin.read()
    if not data.startswith("@"):
        return data
    try:
        return Path(data[1:]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadData(f"{data[1:]} cannot be read: {error}.", hint="Name a file with JSON in UTF-8.") from error
