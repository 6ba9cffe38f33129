"""``flyball replay``: check that a journal replays, ask what if, publish recorded events again."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from app.bus import BROKER_ONLY, Bus
from app.cli.bus import connected
from app.cli.checking import check_journal
from app.cli.output import note, write_event, write_json
from app.cli.place import Place, json_option, placed
from app.cli.selecting import Selection, check_config, complete_types, open_run, select
from app.cli.supposing import suppose
from app.events import Envelope, Event, Payload, follow
from app.journal import SqliteJournalReader
from app.runtime.clock import SystemClock
from app.runtime.journal_replay import EVERY

MICROSECONDS = 1_000_000
EVERYWHERE = frozenset({"first", "last", "as_json"})
FITTING = {
    "check": EVERYWHERE | {"check", "checkpoint", "every"},
    "what_if": EVERYWHERE | {"what_if", "assignments", "patterns", "config_key"},
    "publish": EVERYWHERE | {"patterns", "config_key", "speed", "reason", "yes", "timeout"},
}
"""The options that mean something in each mode."""

CHOOSING = frozenset({"patterns", "config_key", "first", "last"})
"""The options of which publishing again needs one: nobody wants the whole journal to happen once more."""


@click.command()
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...", shell_complete=complete_types)
@click.option("--check", is_flag=True, help="Fold the journal through the controllers and compare; publish nothing.")
@click.option("--what-if", is_flag=True, help="Fold it with other settings and show what differs; publish nothing.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="What if KEY were VALUE; repeatable.")
@click.option(
    "--checkpoint",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the state of a check here now and then, and go on from it.",
)
@click.option("--every", default=EVERY, show_default=True, type=click.IntRange(1), help="Events between saves.")
@click.option("--from", "first", default=1, show_default=True, type=click.IntRange(1), help="First position.")
@click.option("--to", "last", type=click.IntRange(1), help="Last position  [default: the present end]")
@click.option("--config-key", help="Only events about this configuration.")
@click.option("--speed", type=click.FloatRange(0, min_open=True), help="1: as it was, 10: ten times as fast.")
@click.option("--reason", help="Why; part of the new events' ids. Needed with --yes.")
@click.option("--yes", is_flag=True, help="Publish; otherwise show what would be published.")
@click.option("--timeout", default=10.0, show_default=True, type=click.FloatRange(0, min_open=True), help="Seconds.")
@json_option
@placed
@click.pass_context
def replay(ctx: click.Context, /, place: Place, **options: Any) -> None:
    """Replay recorded events, in one of three ways.

    \b
    flyball replay --check
        Recompute every decision from the recorded facts, and compare. Prints the
        first difference with its causes, and exits with 1.
    flyball replay --what-if --set feedback.stall.velocity=3
        Show the decisions that other settings would have changed, a summary first.
        PATTERNs select events; without them, requests and OPPONENT_SAMPLED are only
        counted. It is open loop: the recorded facts stay as they are.
    flyball replay PATTERN
        Show which recorded events would be published again; --yes --reason WHY does it.
        Choose them by PATTERNs, --config-key, --from, --to. They become new events, each
        caused by its original. Their ids follow from the original and the reason, so a
        repetition records nothing new. What is published happens again, in the run as it
        is now: a request is carried out, a decision sets its knob, a promotion makes its
        model current. RUN_CONFIGURED is skipped: only the broker publishes it.
    """
    mode = _mode(ctx)
    with open_run(place) as reader:
        check_config(reader, options["config_key"])
        _check_span(reader.head, options["first"], options["last"])
        if mode == "check":
            check_journal(reader, **_some(options, "first", "last", "checkpoint", "every", "as_json"))
            return
        selection = select(options["patterns"], options["config_key"])
        if mode == "what_if":
            suppose(reader, selection, **_some(options, "assignments", "first", "last", "as_json"))
        else:
            _again(place, reader, selection, options)


def _some(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names}


def _mode(ctx: click.Context) -> str:
    """Return the mode, when all that was given fits it."""
    given = {name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    given -= {name for name in ("patterns", "assignments") if not ctx.params[name]}
    mode = next((name for name in ("check", "what_if") if ctx.params[name]), "publish")
    if unfit := given - FITTING[mode]:
        flags = [param.opts[0] for param in ctx.command.params if param.name in unfit]
        what = "publishing again" if mode == "publish" else f"--{mode.replace('_', '-')}"
        raise click.UsageError(f"{', '.join(flags)} cannot be used with {what}.")
    if ctx.params["yes"] and not ctx.params["reason"]:
        raise click.UsageError("Say why: --reason is needed with --yes.")
    if mode == "publish" and not given & CHOOSING:
        raise click.UsageError("Say what to do: --check, --what-if, or by PATTERN which events to publish again.")
    return mode


def _check_span(head: int, first: int, last: int | None) -> None:
    """Refuse a span in which there is nothing: that nothing was found there would say nothing."""
    if last is not None and last < first:
        raise click.UsageError(f"--from {first} lies after --to {last}: there is nothing between them.")
    if first > max(1, head):
        raise click.UsageError(f"The journal ends at {head}: begin at or before it with --from.")


def _again(place: Place, reader: SqliteJournalReader, selection: Selection, options: dict[str, Any]) -> None:
    first, last, as_json = options["first"], options["last"], options["as_json"]
    end = reader.head if last is None else min(last, reader.head)
    upto = takewhile(lambda event: event.sequence <= end, selection.read(reader, after=first - 1))
    chosen = (event for event in upto if event.data.event_type not in BROKER_ONLY)
    if options["yes"]:
        asyncio.run(_replay(place, chosen, options["reason"], options["speed"], options["timeout"], as_json=as_json))
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
