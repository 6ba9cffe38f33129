"""Events for tests of scenarios. A loop records them before a scenario, and in answer to it."""

from builders import training_of
from driving import KEY, OLD, run_settings
from driving import played as completed

from flyball.app.config import RunSettings
from flyball.app.controllers import FeedbackState
from flyball.app.core import ConfigKey
from flyball.app.events import (
    Event,
    ExplorationBoost,
    Payload,
    SelfplayComplete,
    SelfplayRequested,
    TrainingRequested,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.scenarios.plan import ConfigView


def known_after(*payloads: Payload, settings: RunSettings | None = None, key: str = KEY) -> ConfigView:
    """Return the knowledge about a configuration after events with these payloads."""
    known = ConfigView(settings or run_settings(), FeedbackState(config_key=ConfigKey(key)))
    for data in payloads:
        envelope = originate(data, event_id="event", time=EPOCH, subject=key)
        known.take(Event(envelope, 1, 0, "broker@laptop"))
    return known


def boosted(multiplier: float) -> ExplorationBoost:
    return ExplorationBoost(multiplier=multiplier, lasts_seconds=60, reason="x")


def trained_at(rate: float) -> TrainingRequested:
    return training_of(learning_rate=rate)


def asked(worker: str, model: str = OLD) -> SelfplayRequested:
    return SelfplayRequested(worker=worker, model=model, lineups=(), games=10, seed=1, temperature=1, probe=False)


def played(request: str, shard: str = "c" * 64, model: str = OLD) -> SelfplayComplete:
    done = completed(shard=shard, model=model)
    return done.replace(request_id=request, shard=done.shard.replace(rows=100, games=10))
