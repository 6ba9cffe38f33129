"""Differences that other settings make to a journal, and their texts."""

from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from flyball.app.events import CATALOGUE, Kind, OpponentSampled
from flyball.app.events.frames import DeadLetter
from flyball.app.journal import JournalReader, history
from flyball.app.journal.history import voided_events
from flyball.app.replay.explain import differing
from flyball.app.replay.replaying import all_settings
from flyball.app.replay.what_if import Divergence, WhatIf
from flyball.app.status.summary import summarise

WORK = frozenset(payload for payload in CATALOGUE if payload.kind is Kind.REQUEST) | {OpponentSampled}
"""Types that are only counted by default. Nearly all their events differ after the first different decision."""


def read_divergences(
    reader: JournalReader,
    values: Mapping[str, Any],
    *,
    first: int,
    last: int,
    on_dead: Callable[[DeadLetter], None],
    on_event: Callable[[int], None] = lambda _: None,
) -> Iterator[Divergence]:
    """Iterate over the conclusions that other settings would have changed.

    Args:
        reader: of the journal; it is folded from its beginning in any case.
        values: the settings that differ, by dotted key.
        first: conclusions from earlier events are left out.
        last: position of the last event that is folded.
        on_dead: receives events that can't be read.
        on_event: receives the position of each event.

    Raises ``BadSettings`` as ``WhatIf``.
    """
    what_if = WhatIf(values, past=all_settings(reader), voided=voided_events(reader).keys())
    events = history(reader, types=what_if.reads, on_dead=on_dead)
    for event in takewhile(lambda event: event.sequence <= last, events):
        on_event(event.sequence)
        divergences = what_if.feed(event)
        if event.sequence >= first:
            yield from divergences


def divergence_name(divergence: Divergence) -> str:
    """Return the name of the event that differs. Return both names if one event took the place of another type."""
    return " → ".join(dict.fromkeys(envelope.data.event_name for envelope in divergence.envelopes))


def divergence_text(divergence: Divergence) -> str:
    """Return both events' summaries in a line. If these are equal, return the first field that differs."""
    lines = [summarise(envelope.data) for envelope in divergence.envelopes]
    if len(set(lines)) == len(lines):
        return " → ".join(lines)
    field = differing(divergence.before, divergence.after)[0]
    return f"{lines[0]}: {field.path} {field.recorded} → {field.recomputed}"
