"""``flyball replay --what-if``: which decisions would other settings have changed?"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import click

from app.cli.output import note, write_json
from app.cli.selecting import Selection, complain
from app.dashboard import summarise
from app.events import Envelope, Kind, Payload
from app.journal import SqliteJournalReader, history
from app.runtime.overrides import parse
from app.runtime.past import voided_events
from app.runtime.stories import differing
from app.runtime.what_if import Divergence, WhatIf

EVERY = "all configurations"
SIGNS = {"added": "+", "missing": "-", "changed": "~"}


def suppose(
    reader: SqliteJournalReader,
    selection: Selection,
    *,
    assignments: Sequence[str],
    first: int,
    last: int | None,
    as_json: bool,
) -> None:
    """Print where conclusions part: in short first, then by configuration and in time.

    Without patterns, requests are only counted: nearly all of them differ after the first decision that does.
    """
    if not assignments:
        raise click.UsageError("Say what would be different: --set KEY=VALUE.")
    counts: Counter[tuple[str, str, str]] = Counter()
    shown, firsts = list[Divergence](), dict[str, Divergence]()
    for one in _divergences(reader, assignments, first, last):
        data, about = one.envelope.data, one.envelope.subject or ""
        if selection.config_key in (None, about):
            counts[about, data.seed_name, one.kind] += 1
            firsts.setdefault(about, one)
            if selection.admits(data.event_type, about) and (selection.types or data.kind is not Kind.REQUEST):
                shown.append(one)
    shown.sort(key=lambda one: (one.envelope.subject or "", one.position))
    if as_json:
        write_json(_as_json(shown, counts))
    else:
        _sum_up(firsts, counts)
        _print(shown)


def _divergences(
    reader: SqliteJournalReader, assignments: Sequence[str], first: int, last: int | None
) -> Iterator[Divergence]:
    what_if = WhatIf(parse(assignments), voided=voided_events(reader).keys())
    end = reader.head if last is None else min(last, reader.head)
    for event in takewhile(lambda event: event.sequence <= end, history(reader, types=what_if.reads, on_dead=complain)):
        found = what_if.feed(event)
        if event.sequence >= first:
            yield from found


def _sum_up(firsts: Mapping[str, Divergence], counts: Counter[tuple[str, str, str]]) -> None:
    """Say where each configuration parts, in the order in which they do, and how much is otherwise from there on."""
    if not firsts:
        note("Nothing differs.")
        return
    one_only = "; --config-key KEY shows one of these" if len(firsts) > 1 else ""
    click.echo(f"Open loop: facts stay as recorded, so what lies further past a first difference tells less{one_only}.")
    for about, first in firsts.items():
        found = ", ".join(
            f"{count} {name} {kind}" for (one, name, kind), count in sorted(counts.items()) if one == about
        )
        click.echo(f"{about or EVERY}: first at {first.position}, {_time(first)}, by {first.by}; {found}")
    click.echo()


def _print(shown: Sequence[Divergence]) -> None:
    before: str | None = None
    for one in shown:
        about = one.envelope.subject or ""
        if about != before:
            click.echo(about or EVERY)
            before = about
        click.echo(f"  {SIGNS[one.kind]} {one.position:>8}  {_time(one)}  {one.envelope.data.seed_name}  {_said(one)}")


def _time(one: Divergence) -> str:
    return one.time.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")


def _said(one: Divergence) -> str:
    """Say what is otherwise: where a line about each would be the same line, the first field that differs."""
    lines = [summarise(envelope.data) for envelope in (one.before, one.after) if envelope]
    if len(set(lines)) == len(lines):
        return " → ".join(lines)
    field = differing(one.before, one.after)[0]
    return f"{lines[0]}: {field.path} {field.recorded} → {field.recomputed}"


def _as_json(shown: Sequence[Divergence], counts: Counter[tuple[str, str, str]]) -> dict[str, Any]:
    return {
        "counts": [
            {"config_key": about or None, "name": name, "kind": kind, "count": count}
            for (about, name, kind), count in sorted(counts.items())
        ],
        "differences": [
            {
                "kind": one.kind,
                "config_key": one.envelope.subject,
                "name": one.envelope.data.seed_name,
                "position": one.position,
                "time": one.time.isoformat(),
                "by": one.by,
                "before": _data(one.before),
                "after": _data(one.after),
            }
            for one in shown
        ],
    }


def _data(envelope: Envelope[Payload] | None) -> dict[str, Any] | None:
    return None if envelope is None else envelope.data.model_dump(mode="json")
