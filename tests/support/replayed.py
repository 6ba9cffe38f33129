"""Replays of whole histories in memory."""

from collections.abc import Iterable, Mapping

from flyball.app.events import Event, EventVoided, Payload
from flyball.app.replay.replaying import Replay, Report
from flyball.daemons.registry import DAEMONS
from flyball.daemons.spec import DaemonSpec


def replayed(
    events: Iterable[Event[Payload]], daemons: Mapping[str, DaemonSpec] = DAEMONS, *, first: int = 1
) -> Replay:
    """Fold a history through the controllers of some daemons, hosted together."""
    history = list(events)
    voids = {event.data.position: event.sequence for event in history if isinstance(event.data, EventVoided)}
    one = Replay(daemons, first=first, voids=voids)
    one.feed(history)
    return one


def replay(events: Iterable[Event[Payload]], *, first: int = 1) -> Report:
    """Return the report of a history's replay."""
    history = list(events)
    return replayed(history, first=first).report(history[-1].sequence if history else 0)


def replayed_apart(events: Iterable[Event[Payload]]) -> list[Replay]:
    """Fold a history through each daemon's controllers alone, as in a cluster."""
    history = list(events)
    return [replayed(history, {name: spec}) for name, spec in DAEMONS.items() if spec.controllers]
