"""Events that programs publish; every fourth of a second type, some unreadable, some that only brokers may publish."""

from functools import cache

from bus_rig import START, checked

from flyball.app.core import derive_id
from flyball.app.events import (
    DaemonFact,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    NodeLost,
    ParityChecked,
    QualityDegraded,
    originate,
)
from flyball.app.events.frames import Draft, draft_of, hash_id

UNREADABLE_EVERY, FORBIDDEN_EVERY = 31, 41
publishers: dict[int, str] = {}
"""The program that publishes an event, by the event's hashed id."""


@cache
def draft(who: str, number: int) -> Draft:
    """Return a program's event of a number; always the same."""
    if number % FORBIDDEN_EVERY == FORBIDDEN_EVERY - 1:
        data = NodeLost(daemon="training", node="a", silent_seconds=9.0)
        made = draft_of(originate(data, event_id=derive_id(who, "forbidden", number), time=START))
    elif number % UNREADABLE_EVERY == UNREADABLE_EVERY - 1:
        made = Draft(hash_id(f"{who} {number}"), ParityChecked.event_type, "hex7_2p", b"{")
    elif number % 4 == 3:
        reason = "too short " * (number % 19)
        data = QualityDegraded(request_id=derive_id("request", who), worker=who, shard="a" * 64, reason=reason)
        made = draft_of(originate(data, event_id=derive_id(who, number), time=START, subject="hex7_2p"))
    else:
        made = draft_of(checked(number, who=who))
    publishers[made.id_hash] = who
    return made


@cache
def started(who: str, life: int) -> list[Draft]:
    """Return a daemon's first events."""
    daemon, _, node = who.partition("@")
    return _facts(
        f"{who} {life}",
        DaemonStarted(daemon=daemon, node=node, pid=1, version="1"),
        DaemonReady(daemon=daemon, node=node, position=0, capacity=1),
    )


@cache
def stopped(who: str, life: int) -> list[Draft]:
    """Return a daemon's last event."""
    daemon, _, node = who.partition("@")
    return _facts(f"{who} {life}", DaemonStopped(daemon=daemon, node=node, position=0))


def _facts(life: str, *facts: DaemonFact) -> list[Draft]:
    return [draft_of(originate(fact, event_id=f"{life} {fact.event_name}", time=START)) for fact in facts]
