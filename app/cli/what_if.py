"""``flyball replay --what-if``: the decisions that other settings would have changed."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import click

from app.cli.output import note, write_json
from app.cli.selection import Selection, complain
from app.config.loading import parse
from app.events import CATALOGUE, Kind, OpponentSampled
from app.journal import SqliteJournalReader, history
from app.journal.history import voided_events
from app.replay.explain import differing
from app.replay.what_if import Change, Divergence, WhatIf
from app.status.summary import summarise

EVERY = "all configurations"
SIGNS: dict[Change, str] = {"missing": "-", "added": "+", "replaced": ">", "changed": "~"}
"""The kinds of change, in the order of the summary."""

WORK = frozenset(payload for payload in CATALOGUE if payload.kind is Kind.REQUEST) | {OpponentSampled}
"""Only counted by default, because nearly all of them differ after the first different decision."""

Counts = Counter[tuple[str, Change, str]]
"""By configuration, kind of change and name."""


def suppose(
    reader: SqliteJournalReader,
    selection: Selection,
    *,
    assignments: Sequence[str],
    first: int,
    last: int | None,
    as_json: bool,
) -> None:
    """Print differences: a summary first, then a list by configuration and time.

    Without patterns, events in ``WORK`` are only counted.
    """
    if not assignments:
        raise click.UsageError("Say what would be different: --set KEY=VALUE.")
    counts: Counts = Counter()
    shown, firsts = list[Divergence](), dict[str, Divergence]()
    for one in _divergences(reader, assignments, first, last):
        about = one.envelope.subject or ""
        if selection.config_key not in (None, about):
            continue
        counts[about, one.kind, _name(one)] += 1
        firsts.setdefault(about, one)
        payloads = {type(envelope.data) for envelope in one.envelopes}
        if payloads - WORK if selection.types is None else payloads & selection.types:
            shown.append(one)
    shown.sort(key=lambda one: (one.envelope.subject or "", one.position))
    if as_json:
        write_json(_as_json(shown, counts))
    else:
        _sum_up(firsts, counts)
        _print(shown)


def _name(one: Divergence) -> str:
    return " → ".join(dict.fromkeys(envelope.data.event_name for envelope in one.envelopes))


def _divergences(
    reader: SqliteJournalReader, assignments: Sequence[str], first: int, last: int | None
) -> Iterator[Divergence]:
    what_if = WhatIf(parse(assignments), voided=voided_events(reader).keys())
    end = reader.head if last is None else min(last, reader.head)
    for event in takewhile(lambda event: event.sequence <= end, history(reader, types=what_if.reads, on_dead=complain)):
        found = what_if.feed(event)
        if event.sequence >= first:
            yield from found


def _sum_up(firsts: Mapping[str, Divergence], counts: Counts) -> None:
    """Print counts by kind of change, then by configuration, in order of their first difference."""
    if not firsts:
        note("Nothing differs.")
        return
    one_only = "; --config-key KEY shows one of these" if len(firsts) > 1 else ""
    click.echo(f"Open loop: facts stay as recorded, so what lies further past a first difference tells less{one_only}.")
    for kind, names in _by_kind(counts).items():
        click.echo(f"{SIGNS[kind]} {kind:<8} {', '.join(f'{count:,} {name}' for name, count in names)}")
    for about, first in firsts.items():
        found = ", ".join(
            f"{count} {name} {kind}" for (one, kind, name), count in sorted(counts.items()) if one == about
        )
        click.echo(f"{about or EVERY}: first at {first.position}, {_time(first)}, by {first.by}; {found}")
    click.echo()


def _by_kind(counts: Counts) -> dict[Change, list[tuple[str, int]]]:
    """Return (name, count) pairs by kind of change: the most frequent first, ``WORK`` last."""
    work = {payload.event_name for payload in WORK}
    totals: dict[Change, Counter[str]] = {kind: Counter() for kind in SIGNS}
    for (_, kind, name), count in sorted(counts.items()):
        totals[kind][name] += count
    return {
        kind: sorted(names.items(), key=lambda one: (one[0] in work, -one[1]))
        for kind, names in totals.items()
        if names
    }


def _print(shown: Sequence[Divergence]) -> None:
    before: str | None = None
    for one in shown:
        about = one.envelope.subject or ""
        if about != before:
            click.echo(about or EVERY)
            before = about
        click.echo(f"  {SIGNS[one.kind]} {one.position:>8}  {_time(one)}  {_name(one)}  {_content(one)}")


def _time(one: Divergence) -> str:
    return one.time.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")


def _content(one: Divergence) -> str:
    """Return both contents in a line, or, where their summaries are alike, the first field that differs."""
    lines = [summarise(envelope.data) for envelope in one.envelopes]
    if len(set(lines)) == len(lines):
        return " → ".join(lines)
    field = differing(one.before, one.after)[0]
    return f"{lines[0]}: {field.path} {field.recorded} → {field.recomputed}"


def _as_json(shown: Sequence[Divergence], counts: Counts) -> dict[str, Any]:
    return {
        "summary": {kind: dict(names) for kind, names in _by_kind(counts).items()},
        "counts": [
            {"config_key": about or None, "name": name, "kind": kind, "count": count}
            for (about, kind, name), count in sorted(counts.items())
        ],
        "differences": [
            {
                "kind": one.kind,
                "config_key": one.envelope.subject,
                "name": _name(one),
                "position": one.position,
                "time": one.time.isoformat(),
                "by": one.by,
                "before": one.before and one.before.data.model_dump(mode="json"),
                "after": one.after and one.after.data.model_dump(mode="json"),
            }
            for one in shown
        ],
    }
