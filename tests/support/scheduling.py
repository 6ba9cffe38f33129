"""Driving the scheduler: workers, requests and their answers."""

from builders import ready, training_of
from driving import KEY, NEW, Driven, played, scored, trained

from flyball.app.config import RunSettings
from flyball.app.controllers import SelfplayScheduler
from flyball.app.events import DaemonReady, Event, SelfplayComplete, SelfplayRequested


def joined(node: str = "laptop", capacity: int = 1) -> DaemonReady:
    return ready("selfplay_worker", node, capacity=capacity)


def staffed(run: RunSettings | None = None, **nodes: int) -> Driven:
    """Return a scheduler with workers of these capacities, by default one on the laptop."""
    driven = Driven(SelfplayScheduler, run)
    for node, capacity in (nodes or {"laptop": 1}).items():
        driven.feed(joined(node, capacity), key=None)
    return driven


def unanswered(scheduler: Driven, key: str = KEY) -> list[Event[SelfplayRequested]]:
    """Return a configuration's undelivered requests, oldest first."""
    delivered = {event.data.request_id for event in scheduler.events if isinstance(event.data, SelfplayComplete)}
    asked = [event for event in scheduler.events if isinstance(event.data, SelfplayRequested)]
    return [event for event in asked if event.subject == key and event.id not in delivered]


def complete(scheduler: Driven, key: str = KEY, seconds: float = 1.0, at: float = 0.0) -> list:
    """Answer the oldest request, leaving its shard uninspected."""
    request = unanswered(scheduler, key)[0]
    return scheduler.feed(delivery(request.id, request.data, seconds), key=key, at=at)


def answer(scheduler: Driven, key: str = KEY, rows: int = 1, at: float = 0.0, seconds: float = 1.0) -> list:
    request = unanswered(scheduler, key)[0]
    requests = complete(scheduler, key, seconds, at)
    found = scored(rows=rows, model=request.data.model, request=request.id)
    whole = found.replace(shard=found.shard.replace(games=request.data.games))
    return requests + scheduler.feed(whole, key=key, at=at)


def delivery(request_id: str, request: SelfplayRequested, seconds: float = 1.0) -> SelfplayComplete:
    return played(model=request.model).replace(request_id=request_id, seconds=seconds)


def begin_training(scheduler: Driven, *shards: str) -> list:
    return scheduler.feed(training_of(*(scored(shard=shard).shard for shard in shards)))


def end_training(scheduler: Driven, model: str = NEW) -> list:
    return scheduler.feed(trained(model).replace(request_id=scheduler.state().lineage.training))


SHARD = scored().shard.key
"""The shard of every answer."""
