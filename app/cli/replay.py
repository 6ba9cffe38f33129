"""``flyball replay``: check a journal, compare other settings, publish recorded events again."""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from itertools import groupby, takewhile
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.text import Text

from flyball.app.api.runs import RunLocation, check_config, connected, open_run, settings_shown
from flyball.app.api.selection import Selection, select
from flyball.app.bus import BROKER_ONLY
from flyball.app.cli.options import (
    FILE,
    complete_types,
    config_key_option,
    given_options,
    json_option,
    pick,
    run_options,
    timeout_option,
)
from flyball.app.cli.output import complain, echo, note, show, write_event, write_json, write_row
from flyball.app.config import RunSettings
from flyball.app.config.loading import parse
from flyball.app.core import SECOND_US, UnusableFile
from flyball.app.events import Event, follow
from flyball.app.journal import DamagedDatabase, JournalReader, SqliteStateStore, StateStore, history
from flyball.app.replay.divergences import WORK, divergence_name, divergence_text, read_divergences
from flyball.app.replay.explain import NonDeterministicReplay, Story, verify
from flyball.app.replay.replaying import EVERY, Report, replay_journal
from flyball.app.replay.what_if import Change, Divergence
from flyball.app.status.summary import event_text, show_time
from flyball.daemons.clock import SystemClock

MOST_UNFOLDED = 10
"""Most failed events that are listed; the total counts all."""

EVERYWHERE = frozenset({"first", "last", "as_json"})
FITTING = {
    "check": EVERYWHERE | {"check", "checkpoint", "every"},
    "what_if": EVERYWHERE | {"what_if", "assignments", "patterns", "config_key"},
    "publish": EVERYWHERE | {"patterns", "config_key", "speed", "reason", "yes", "timeout"},
}
"""The options that each mode accepts."""

CHOOSING = frozenset({"patterns", "config_key", "first", "last"})
"""Options of which publishing again needs one. Otherwise an operator could publish the whole journal by mistake."""

EVERY_CONFIG = "all configurations"
SIGNS: dict[Change, str] = {"missing": "-", "added": "+", "replaced": ">", "changed": "~"}
"""A sign for each kind of change, in the summary's order."""

Counts = Counter[tuple[str, Change, str]]
"""The number of differences by configuration, kind of change and event name."""


@click.command()
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...", shell_complete=complete_types)
@click.option("--check", is_flag=True, help="Fold the journal through the controllers and compare; publish nothing.")
@click.option("--what-if", is_flag=True, help="Fold it with other settings and show what differs; publish nothing.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="What if KEY were VALUE; repeatable.")
@click.option("--checkpoint", type=FILE, help="Save the state of a check here now and then, and go on from it.")
@click.option("--every", default=EVERY, type=click.IntRange(1), help="Events between saves.")
@click.option("--from", "first", default=1, type=click.IntRange(1), help="First position.")
@click.option("--to", "last", type=click.IntRange(1), help="Last position  [default: the present end]")
@config_key_option
@click.option("--speed", type=click.FloatRange(0, min_open=True), help="1: as it was, 10: ten times as fast.")
@click.option("--reason", help="Why; part of the new events' ids. Needed with --yes.")
@click.option("--yes", is_flag=True, help="Publish; otherwise show what would be published.")
@timeout_option
@json_option
@run_options
@click.pass_context
def replay(ctx: click.Context, /, location: RunLocation, **options: Any) -> None:
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
    with open_run(location) as reader:
        check_config(reader, options["config_key"])
        end = _checked_end(reader.head, options["first"], options["last"])
        if mode == "check":
            check_journal(reader, end=end, **pick(options, "first", "checkpoint", "every", "as_json"))
            return
        selection = select(options["patterns"], options["config_key"])
        if mode == "what_if":
            show_what_if(reader, selection, end=end, **pick(options, "assignments", "first", "as_json"))
        else:
            _publish_or_show(location, reader, selection, end, options)


def _mode(ctx: click.Context) -> str:
    """Return the mode, and refuse options that do not belong to it."""
    flags = given_options(ctx)
    mode = next((name for name in ("check", "what_if") if ctx.params[name]), "publish")
    if unfit := [flag for name, flag in flags.items() if name not in FITTING[mode]]:
        what = "publishing again" if mode == "publish" else f"--{mode.replace('_', '-')}"
        raise click.UsageError(f"{', '.join(unfit)} cannot be used with {what}.")
    if ctx.params["yes"] and not ctx.params["reason"]:
        raise click.UsageError("Say why: --reason is needed with --yes.")
    if mode == "publish" and CHOOSING.isdisjoint(flags):
        raise click.UsageError("Say what to do: --check, --what-if, or by PATTERN which events to publish again.")
    return mode


def _checked_end(head: int, first: int, last: int | None) -> int:
    """Return the last position of a span. Raises ``UsageError`` for an empty span."""
    if last is not None and last < first:
        raise click.UsageError(f"--from {first} lies after --to {last}: there is nothing between them.")
    if first > max(1, head):
        raise click.UsageError(f"The journal ends at {head}: begin at or before it with --from.")
    return head if last is None else min(last, head)


def _publish_or_show(
    location: RunLocation, reader: JournalReader, selection: Selection, end: int, options: dict[str, Any]
) -> None:
    """Publish the chosen events again with ``--yes``; otherwise show them."""
    events = selection.read(reader, after=options["first"] - 1, on_dead=complain)
    until_end = takewhile(lambda event: event.sequence <= end, events)
    chosen = (event for event in until_end if event.data.event_type not in BROKER_ONLY)
    if options["yes"]:
        asyncio.run(_publish(location, chosen, options["timeout"], **pick(options, "reason", "speed", "as_json")))
        return
    counts: Counter[str] = Counter()
    for event in chosen:
        write_event(event, as_json=options["as_json"])
        counts[event.data.event_name] += 1
    listed = ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "nothing"
    note(f"Would publish again: {listed}. To do it, add --yes and --reason.")


async def _publish(
    location: RunLocation,
    events: Iterator[Event[Any]],
    deadline_s: float,
    *,
    reason: str,
    speed: float | None,
    as_json: bool,
) -> None:
    """Publish each event's data as a new event caused by the original. The same reason gives the same id."""
    before: int | None = None
    async with connected(location, deadline_s) as bus:
        for event in events:
            if speed is not None and before is not None:
                await asyncio.sleep((event.recorded_us - before) / SECOND_US / speed)
            before = event.recorded_us
            envelope = follow(event.data, event.cause, by=f"replay:{reason}", time=SystemClock().now())
            position = await bus.publish(envelope)
            row = {"position": position, "id": envelope.id, "original": event.id}
            write_row(row, f"{position} {envelope.id} {event.data.event_name} after {event.sequence}", as_json=as_json)


def check_journal(
    reader: JournalReader, *, first: int, end: int, checkpoint: Path | None, every: int, as_json: bool
) -> None:
    """Replay a journal and print the report. Raises ``NonDeterministicReplay`` after printing it."""
    if checkpoint is not None and first > 1:
        raise click.UsageError("--from cannot be used with --checkpoint: what was checked before is in it.")
    with _store(checkpoint) as checkpoints:
        after = checkpoints.load()[0] if checkpoints else 0
        gc.freeze()  # otherwise the garbage collector would scan all loaded modules repeatedly
        began = perf_counter()
        report = replay_journal(reader, first=first, last=end, checkpoints=checkpoints, every=every)
        seconds = perf_counter() - began
    first_difference: NonDeterministicReplay | None = None
    try:
        verify(lambda: history(reader, on_dead=lambda _: None), report)
    except NonDeterministicReplay as difference:
        first_difference = difference
    if as_json:
        write_json(_report_json(report, report.position - after, seconds, first_difference))
    else:
        _print_report(report, report.position - after, seconds)
        if first_difference:
            _print_story(first_difference.story, settings_shown(reader))
        else:
            note("The journal replays: every conclusion follows from what was recorded before it.")
    if first_difference:
        raise first_difference


@contextmanager
def _store(path: Path | None) -> Iterator[StateStore | None]:
    if path is None:
        yield None
        return
    try:
        store = SqliteStateStore(path)
    except DamagedDatabase as error:
        hint = "Name another file; or if it was a checkpoint remove it: it only saves time."
        raise UnusableFile(f"{path} is damaged, or no checkpoint.", hint=hint) from error
    with closing(store):
        yield store


def _print_report(report: Report, events: int, seconds: float) -> None:
    for name, count in report.matched.items():
        echo(f"{name:<28} {count:>9,}")
    rows = {
        "recorded = recomputed": f"{sum(report.matched.values()):,}",
        "different": f"{report.differing:,}",
        "by operators": f"{report.foreign:,}",
        "in flight at the end": f"{len(report.in_flight):,}",
        "not folded": f"{len(report.unfolded):,}",
        "state hash": report.state_hash,
        "folded": f"{events:,} events up to {report.position:,} in {seconds:.2f} s, {events / seconds:,.0f}/s",
    }
    for name, value in rows.items():
        echo(f"{name:<28} {value:>9}")
    if report.voided:
        note(f"Left out, because an operator voided them: {', '.join(map(str, report.voided))}.")
    for failed in report.unfolded[:MOST_UNFOLDED]:
        note(f"Not folded: {failed.position}, by {failed.by}: {failed.error}")
    if len(report.unfolded) > MOST_UNFOLDED:
        note(f"Not folded: {len(report.unfolded) - MOST_UNFOLDED} more.")
    for change in report.handovers:
        echo(
            f"{change.daemon}: decisions before position {change.position:,} were made by another version; "
            f"{change.version} would have decided {change.differing:,} of them otherwise"
        )


def _print_story(story: Story, settings: RunSettings | None) -> None:
    echo(f"\nThe first difference: {story.headline()}\n")
    if story.earlier:
        echo(f"  … {story.earlier} earlier causes")
    for event in story.causes:
        show(Text(f"{event.sequence:>8}  ").append_text(event_text(event, settings)))
    for field in story.fields:
        echo(f"  {field.path}: recorded {field.recorded}, recomputed {field.recomputed}")


def _report_json(
    report: Report, events: int, seconds: float, first_difference: NonDeterministicReplay | None
) -> dict[str, Any]:
    return {
        "position": report.position,
        "events": events,
        "seconds": round(seconds, 3),
        "events_per_second": round(events / seconds),
        "matched": dict(report.matched),
        "differing": report.differing,
        "by_operators": report.foreign,
        "in_flight": len(report.in_flight),
        "unfolded": [item._asdict() for item in report.unfolded],
        "voided": list(report.voided),
        "handovers": [item.model_dump(mode="json") for item in report.handovers],
        "state_hash": report.state_hash,
        "first_difference": _story_json(first_difference.story) if first_difference else None,
    }


def _story_json(story: Story) -> dict[str, Any]:
    return {
        "kind": story.difference.kind,
        "position": story.difference.position,
        "by": story.difference.by,
        "headline": story.headline(),
        "recorded": story.recorded and story.recorded.to_cloudevent(),
        "recomputed": story.recomputed and story.recomputed.attributes(),
        "fields": [asdict(field) for field in story.fields],
        "causes": [event.to_cloudevent() for event in story.causes],
        "earlier_causes": story.earlier,
    }


def show_what_if(
    reader: JournalReader, selection: Selection, *, assignments: Sequence[str], first: int, end: int, as_json: bool
) -> None:
    """Print a summary of the differences, then a list of them.

    The list is in order of configuration and position. Events of ``WORK`` are listed only if selected.
    """
    if not assignments:
        raise click.UsageError("Say what would be different: --set KEY=VALUE.")
    counts: Counts = Counter()
    shown, firsts = list[Divergence](), dict[str, Divergence]()
    for divergence in read_divergences(reader, parse(assignments), first=first, last=end, on_dead=complain):
        config_key = divergence.envelope.subject or ""
        if selection.config_key not in (None, config_key):
            continue
        counts[config_key, divergence.kind, divergence_name(divergence)] += 1
        firsts.setdefault(config_key, divergence)
        payloads = {type(envelope.data) for envelope in divergence.envelopes}
        if payloads - WORK if selection.types is None else payloads & selection.types:
            shown.append(divergence)
    shown.sort(key=lambda divergence: (divergence.envelope.subject or "", divergence.position))
    if as_json:
        write_json(_divergences_json(shown, counts))
    else:
        _print_summary(firsts, counts)
        _print_divergences(shown)


def _print_summary(firsts: Mapping[str, Divergence], counts: Counts) -> None:
    """Print counts by kind of change, then by configuration. Configurations are in order of their first difference."""
    if not firsts:
        note("Nothing differs.")
        return
    one_only = "; --config-key KEY shows one of these" if len(firsts) > 1 else ""
    echo(f"Open loop: facts stay as recorded, so what lies further past a first difference tells less{one_only}.")
    for kind, names in _by_kind(counts).items():
        echo(f"{SIGNS[kind]} {kind:<8} {', '.join(f'{count:,} {name}' for name, count in names)}")
    for config_key, first in firsts.items():
        begins = f"first at {first.position}, {show_time(first.time)}, by {first.by}"
        changes = [f"{count} {name} {kind}" for (key, kind, name), count in sorted(counts.items()) if key == config_key]
        echo(f"{config_key or EVERY_CONFIG}: {begins}; {', '.join(changes)}")
    echo()


def _by_kind(counts: Counts) -> dict[Change, list[tuple[str, int]]]:
    """Return (name, count) pairs by kind of change. The most frequent names come first, those of ``WORK`` last."""
    work = {payload.event_name for payload in WORK}
    totals: dict[Change, Counter[str]] = {kind: Counter() for kind in SIGNS}
    for (_, kind, name), count in sorted(counts.items()):
        totals[kind][name] += count
    return {
        kind: sorted(names.items(), key=lambda item: (item[0] in work, -item[1]))
        for kind, names in totals.items()
        if names
    }


def _print_divergences(shown: Sequence[Divergence]) -> None:
    for config_key, divergences in groupby(shown, key=lambda divergence: divergence.envelope.subject):
        echo(config_key or EVERY_CONFIG)
        for divergence in divergences:
            where = f"{SIGNS[divergence.kind]} {divergence.position:>8}  {show_time(divergence.time)}"
            echo(f"  {where}  {divergence_name(divergence)}  {divergence_text(divergence)}")


def _divergences_json(shown: Sequence[Divergence], counts: Counts) -> dict[str, Any]:
    return {
        "summary": {kind: dict(names) for kind, names in _by_kind(counts).items()},
        "counts": [
            {"config_key": config_key or None, "name": name, "kind": kind, "count": count}
            for (config_key, kind, name), count in sorted(counts.items())
        ],
        "differences": [
            {
                "kind": divergence.kind,
                "config_key": divergence.envelope.subject,
                "name": divergence_name(divergence),
                "position": divergence.position,
                "time": divergence.time.isoformat(),
                "by": divergence.by,
                "before": divergence.before and divergence.before.data.model_dump(mode="json"),
                "after": divergence.after and divergence.after.data.model_dump(mode="json"),
            }
            for divergence in shown
        ],
    }
