"""Explain how recorded and recomputed events differ, and their causes. Pure."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from flyball.app.core import FlyballError
from flyball.app.events import Envelope, Event, Payload
from flyball.app.replay.reconcile import Difference
from flyball.app.replay.replaying import Report
from flyball.app.status.trace import Read, ancestors

ABSENT = "-"


@dataclass(frozen=True, slots=True)
class ChangedField:
    """A field that differs, with both values as JSON. ``-`` stands for an absent value."""

    path: str
    recorded: str
    recomputed: str


@dataclass(frozen=True, slots=True)
class Story:
    """A difference with its events, fields and causes.

    Attributes:
        difference: the difference to explain.
        recorded: the event in the journal.
        recomputed: the event as a controller would publish it now.
        fields: the fields in which these two events differ.
        causes: the nearest events in the chain of causes, the direct cause last.
        earlier: number of earlier causes in the chain, which ``causes`` omits.
    """

    difference: Difference
    recorded: Event[Any] | None
    recomputed: Envelope[Payload] | None
    fields: tuple[ChangedField, ...]
    causes: tuple[Event[Any], ...]
    earlier: int

    def headline(self) -> str:
        """Describe the difference in a sentence."""
        event: Any = self.recorded or self.recomputed
        about = f" about {event.subject}" if event.subject else ""
        what = f"{event.data.event_name}{about}"
        by, at = self.difference.by, self.difference.position
        match self.difference.kind:
            case "changed":
                first = self.fields[0]
                return (
                    f"{what}, recorded at {self.difference.recorded_at}, says {first.path} {first.recorded}; "
                    f"{by} now concludes {first.recomputed}."
                )
            case "missing":
                return f"{what} was never recorded; {by} now concludes it from the event at {at}."
        return f"{what}, recorded at {at} by {by}, is not what any controller concludes now."


class NonDeterministicReplay(FlyballError):
    """Recomputed conclusions differ from the recorded ones; ``story`` explains the first difference."""

    def __init__(self, story: Story, differing: int) -> None:
        more = f" It is the first of {differing} differences." if differing > 1 else ""
        super().__init__(
            story.headline() + more,
            hint="Was it recorded by another version? Then it is the version's effect. If not, a controller is impure.",
        )
        self.story = story


def explain(read: Read, difference: Difference, *, causes: int = 8) -> Story:
    """Find the fields in which an event differs, and its causes.

    ``causes`` is the largest number of the nearest causes to return.

    ``read`` is called twice; each call has to read the history from its beginning.
    """
    envelope, last = difference.envelope(), max(difference.position, difference.recorded_at or 0)

    def recorded_events() -> Iterable[Event[Any]]:
        return takewhile(lambda event: event.sequence <= last, read())

    cause_of: dict[str, str | None] = {event.id: event.envelope.causationid for event in recorded_events()}
    direct = cause_of.get(difference.event_id) if envelope is None else envelope.causationid
    chain = ancestors(cause_of, direct)
    needed = {difference.event_id, *chain[:causes]}
    events: dict[str, Event[Any]] = {event.id: event for event in recorded_events() if event.id in needed}
    recorded = events.get(difference.event_id)
    return Story(
        difference=difference,
        recorded=recorded,
        recomputed=envelope,
        fields=differing(recorded.envelope if recorded else None, envelope),
        causes=tuple(events[event_id] for event_id in reversed(chain[:causes])),
        earlier=max(0, len(chain) - causes),
    )


def verify(read: Read, report: Report) -> None:
    """Check that a report has no differences.

    Raises:
        NonDeterministicReplay: the report has differences; the error explains the first one.
    """
    if report.differences:
        raise NonDeterministicReplay(explain(read, report.differences[0]), report.differing)


def differing(recorded: Envelope[Payload] | None, recomputed: Envelope[Payload] | None) -> tuple[ChangedField, ...]:
    """Return the fields in which two conclusions differ, sorted by path."""
    before = dict(_leaves("", recorded.attributes())) if recorded else {}
    after = dict(_leaves("", recomputed.attributes())) if recomputed else {}
    paths = sorted(before.keys() | after.keys())
    pairs = ((path, before.get(path, ABSENT), after.get(path, ABSENT)) for path in paths)
    return tuple(ChangedField(path, old, new) for path, old, new in pairs if old != new)


def _leaves(path: str, value: Any) -> Iterable[tuple[str, str]]:
    match value:
        case dict() if value:
            children: Iterable[tuple[Any, Any]] = value.items()
        case list() if value:
            children = enumerate(value)
        case _:
            yield path, json.dumps(value, ensure_ascii=False)
            return
    for name, child in children:
        yield from _leaves(f"{path}.{name}".lstrip("."), child)
