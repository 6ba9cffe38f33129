"""Old versions of payloads, lifted to the present one.

An upcast takes the ``data`` of version n and returns that of version n + 1. Register one with ``@upcast`` when a
payload's schema changes and its ``version`` is raised: what the journal holds is never rewritten.
"""

from collections.abc import Callable
from typing import Any

from app.core import FlyballError

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTS: dict[tuple[str, int], Upcast] = {}
"""(event type, version it starts from) → how to get to the next version."""


class NoUpcast(FlyballError):
    """An event is of a version that can't be lifted to the present one."""


def upcast(event_type: str, version: int) -> Callable[[Upcast], Upcast]:
    """Register the decorated function as the way from ``version`` to ``version + 1``."""

    def register(function: Upcast) -> Upcast:
        UPCASTS[event_type, version] = function
        return function

    return register


def lift(event_type: str, data: dict[str, Any], version: int, target: int) -> dict[str, Any]:
    """Lift ``data`` step by step from ``version`` to ``target``.

    Raises:
        NoUpcast: the event is newer than this program, or a step is missing.
    """
    if version > target:
        raise NoUpcast(
            f"{event_type} is of version {version}, this Flyball knows {target}.",
            hint="Upgrade Flyball on this node.",
        )
    for step in range(version, target):
        if (event_type, step) not in UPCASTS:
            raise NoUpcast(f"No upcast leads {event_type} from version {step} to {step + 1}.", hint="Add one.")
        data = UPCASTS[event_type, step](data)
    return data


@upcast("flyball.training.loss_anomaly_detected", 1)
def _alone(data: dict[str, Any]) -> dict[str, Any]:
    """Take an anomaly for a single one: trainings were not counted, and nothing was decided on it."""
    return {**data, "consecutive": 1}


@upcast("flyball.league.matches_requested", 1)
def _among_members(data: dict[str, Any]) -> dict[str, Any]:
    """Take matches for those of a tournament: there were no others."""
    return {**data, "purpose": "tournament"}


@upcast("flyball.evaluation.completed", 1)
@upcast("flyball.evaluation.failed", 1)
@upcast("flyball.training.failed", 1)
def _same(data: dict[str, Any]) -> dict[str, Any]:
    """Change nothing: a field only admits more values."""
    return data


@upcast("flyball.daemon.heartbeat", 1)
def _of_no_request(data: dict[str, Any]) -> dict[str, Any]:
    """Add an empty list of requests: heartbeats renewed all leases then."""
    return {**data, "requests": ()}


@upcast("flyball.selfplay.requested", 1)
def _no_probe(data: dict[str, Any]) -> dict[str, Any]:
    """Mark a request as no probe: there was no quarantine."""
    return {**data, "probe": False}


@upcast("flyball.selfplay.completed", 1)
def _worker_of_its_shard(data: dict[str, Any]) -> dict[str, Any]:
    """Move the worker into the shard."""
    kept = {name: value for name, value in data.items() if name != "worker"}
    return {**kept, "probe": False, "shard": {**data["shard"], "worker": data["worker"] or None}}


@upcast("flyball.quality.score_updated", 1)
def _unnamed_shard(data: dict[str, Any]) -> dict[str, Any]:
    """Leave the worker unknown."""
    return {**data, "shard": {**data["shard"], "worker": None}}


@upcast("flyball.training.requested", 1)
def _unnamed_shards(data: dict[str, Any]) -> dict[str, Any]:
    """Leave the workers unknown."""
    return {**data, "shards": [{**shard, "worker": None} for shard in data["shards"]]}


@upcast("flyball.quality.parity_checked", 1)
@upcast("flyball.quality.degraded", 1)
def _unnamed_worker(data: dict[str, Any]) -> dict[str, Any]:
    """Leave the worker unknown."""
    return {**data, "worker": None}
