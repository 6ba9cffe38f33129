"""``flyball replay --check``: does the journal replay?"""

import gc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from rich.text import Text

from app.cli.output import note, show, write_json
from app.cli.pipes import though_unread
from app.core import UnusableFile
from app.dashboard import event_text
from app.journal import DamagedDatabase, SqliteJournalReader, SqliteStateStore, StateStore, history
from app.runtime.journal_replay import replay_journal
from app.runtime.replaying import Report
from app.runtime.stories import NonDeterministicReplay, Story, verify

MOST_UNFOLDED = 10
"""How many failed events are named; all are counted."""


def check_journal(
    reader: SqliteJournalReader, *, first: int, last: int | None, checkpoint: Path | None, every: int, as_json: bool
) -> None:
    """Replay a journal and print what was found.

    Raises:
        NonDeterministicReplay: recorded and recomputed conclusions differ; the first difference has been printed.
    """
    if checkpoint is not None and first > 1:
        raise click.UsageError("--from cannot be used with --checkpoint: what was checked before is in it.")
    with _store(checkpoint) as checkpoints:
        after = checkpoints.load()[0] if checkpoints else 0
        gc.freeze()  # what is loaded by now stays: the collector need not look at it again and again
        began = perf_counter()
        report = replay_journal(reader, first=first, last=last, checkpoints=checkpoints, every=every)
        seconds = perf_counter() - began
    found: NonDeterministicReplay | None = None
    try:
        verify(lambda: history(reader, on_dead=lambda _: None), report)
    except NonDeterministicReplay as difference:
        found = difference
    with though_unread():  # the exit code tells whether it replays, read or not
        if as_json:
            write_json(_as_json(report, report.position - after, seconds, found))
        else:
            _print(report, report.position - after, seconds, found)
    if found:
        raise found


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


def _print(report: Report, events: int, seconds: float, found: NonDeterministicReplay | None) -> None:
    for name, count in report.matched.items():
        click.echo(f"{name:<28} {count:>9,}")
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
        click.echo(f"{name:<28} {value:>9}")
    if report.voided:
        note(f"Left out, because an operator voided them: {', '.join(map(str, report.voided))}.")
    for one in report.unfolded[:MOST_UNFOLDED]:
        note(f"Not folded: {one.position}, by {one.by}: {one.error}")
    if len(report.unfolded) > MOST_UNFOLDED:
        note(f"Not folded: {len(report.unfolded) - MOST_UNFOLDED} more.")
    for change in report.handovers:
        click.echo(
            f"{change.daemon}: decisions before position {change.position:,} were made by another version; "
            f"{change.version} would have decided {change.differing:,} of them otherwise"
        )
    if found:
        _tell(found.story)
    else:
        note("The journal replays: every conclusion follows from what was recorded before it.")


def _tell(story: Story) -> None:
    click.echo(f"\nThe first difference: {story.headline()}\n")
    if story.earlier:
        click.echo(f"  … {story.earlier} earlier causes")
    for event in story.causes:
        show(Text(f"{event.sequence:>8}  ").append_text(event_text(event)))
    for field in story.fields:
        click.echo(f"  {field.path}: recorded {field.recorded}, recomputed {field.recomputed}")


def _as_json(report: Report, events: int, seconds: float, found: NonDeterministicReplay | None) -> dict[str, Any]:
    return {
        "position": report.position,
        "events": events,
        "seconds": round(seconds, 3),
        "events_per_second": round(events / seconds),
        "matched": dict(report.matched),
        "differing": report.differing,
        "by_operators": report.foreign,
        "in_flight": len(report.in_flight),
        "unfolded": [one._asdict() for one in report.unfolded],
        "voided": list(report.voided),
        "handovers": [one.model_dump(mode="json") for one in report.handovers],
        "state_hash": report.state_hash,
        "first_difference": _story_json(found.story) if found else None,
    }


def _story_json(story: Story) -> dict[str, Any]:
    return {
        "kind": story.difference.kind,
        "position": story.difference.position,
        "by": story.difference.by,
        "headline": story.headline(),
        "recorded": story.recorded and story.recorded.to_cloudevent(),
        "recomputed": story.recomputed and story.recomputed.attributes(),
        "fields": [
            {"path": field.path, "recorded": field.recorded, "recomputed": field.recomputed} for field in story.fields
        ],
        "causes": [event.to_cloudevent() for event in story.causes],
        "earlier_causes": story.earlier,
    }
