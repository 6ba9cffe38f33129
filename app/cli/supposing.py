"""``flyball replay --what-if``: which decisions would other settings have changed?"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import click

from app.cli.output import note, write_json
from app.cli.selecting import Selection
from app.dashboard import summarise
from app.events import Envelope, Kind, Payload
from app.journal import SqliteJournalReader, history
from app.runtime.overrides import parse
from app.runtime.what_if import Divergence, WhatIf

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
    """Print where conclusions part, by configuration and in time.

    Without patterns, requests are only counted: nearly all of them differ after the first decision that does.
    """
    if not assignments:
        raise click.UsageError("Say what would be different: --set KEY=VALUE.")
    counts: Counter[tuple[str, str, str]] = Counter()
    shown = list[Divergence]()
    for one in _divergences(reader, assignments, first, last):
        data, about = one.envelope.data, one.envelope.subject or ""
        if selection.config_key in (None, about):
            counts[about, data.seed_name, one.kind] += 1
            if selection.admits(data.event_type, about) and (selection.types or data.kind is not Kind.REQUEST):
                shown.append(one)
    shown.sort(key=lambda one: (one.envelope.subject or "", one.position))
    if as_json:
        write_json(_as_json(shown, counts))
    else:
        _print(shown, counts)


def _divergences(
    reader: SqliteJournalReader, assignments: Sequence[str], first: int, last: int | None
) -> Iterator[Divergence]:
    what_if = WhatIf(parse(assignments))
    end = reader.head if last is None else min(last, reader.head)
    for event in takewhile(lambda event: event.sequence <= end, history(reader, types=what_if.reads)):
        found = what_if.feed(event)
        if event.sequence >= first:
            yield from found


def _print(shown: Sequence[Divergence], counts: Counter[tuple[str, str, str]]) -> None:
    before: str | None = None
    for one in shown:
        about = one.envelope.subject or ""
        if about != before:
            click.echo(about or "all configurations")
            before = about
        time = one.time.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
        click.echo(f"  {SIGNS[one.kind]} {one.position:>8}  {time}  {one.envelope.data.seed_name}  {_said(one)}")
    for (about, name, kind), count in sorted(counts.items()):
        note(f"{about or 'all configurations'}: {count} {name} {kind}")
    if not counts:
        note("Nothing differs.")


def _said(one: Divergence) -> str:
    return " → ".join(summarise(envelope.data) for envelope in (one.before, one.after) if envelope)


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
