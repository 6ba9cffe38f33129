"""State of a configuration from the journal, for scenarios."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from app.config import RunSettings
from app.core import ModelHash, ShardKey
from app.events import (
    AdaptiveParamsChanged,
    Event,
    ExplorationBoost,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    SelfplayComplete,
    TrainingBlockedByQuality,
    TrainingUnblocked,
)

READS: frozenset[type[Payload]] = frozenset(
    {
        AdaptiveParamsChanged,
        ExplorationBoost,
        ModelPromoted,
        ModelRolledBack,
        SelfplayComplete,
        TrainingBlockedByQuality,
        TrainingUnblocked,
    }
)
"""The types that tell it."""


@dataclass
class Known:
    """One configuration of a run.

    Attributes:
        settings: of the run.
        key: the configuration.
        model: the current model, if there is one.
        promotions: the promotion of each model that was promoted.
        shard: the latest shard that was played.
        blocked: whether the quality of its data keeps it from training.
        boost: its exploration boost; 1 is none.
        learning_rate: of its trainings, once one was decided.
    """

    settings: RunSettings
    key: str
    model: ModelHash | None = None
    promotions: dict[ModelHash, ModelPromoted] = field(default_factory=dict)
    shard: ShardKey | None = None
    blocked: bool = False
    boost: float = 1.0
    learning_rate: float | None = None

    @property
    def promotion(self) -> ModelPromoted | None:
        """The promotion of the current model."""
        return None if self.model is None else self.promotions.get(self.model)

    def take(self, data: Payload) -> None:
        """Take in an event about the configuration."""
        match data:
            case ModelPromoted(model=model):
                self.model, self.promotions[model] = model, data
            case ModelRolledBack(to_model=model) if data.holds(self.model):
                self.model = model
            case SelfplayComplete(shard=shard):
                self.shard = shard.key
            case TrainingBlockedByQuality() | TrainingUnblocked():
                self.blocked = isinstance(data, TrainingBlockedByQuality)
            case ExplorationBoost(multiplier=multiplier):
                self.boost = multiplier
            case AdaptiveParamsChanged(learning_rate=rate):
                self.learning_rate = rate


def known_of(settings: RunSettings, events: Iterable[Event[Any]]) -> dict[str, Known]:
    """Return what is known of each configuration of a run, in the run's order.

    Args:
        settings: of the run.
        events: all recorded ones of the types ``READS``.
    """
    found = {str(config.key): Known(settings, config.key) for config in settings.configs}
    for event in events:
        if event.subject in found:
            found[event.subject].take(event.data)
    return found
