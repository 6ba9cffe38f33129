"""The truth of a simulation: every model's strength, every shard's worth."""

from dataclasses import replace
from hashlib import sha256

from app.core import EventId, ModelHash, ShardKey
from app.events import TrainingRequested
from app.simulation.plant_settings import PlantSettings
from app.simulation.scenario import Episode, draw_episodes, draw_times, severity_at, stream
from app.simulation.strength import Exploit, ModelTruth, Pupil, ShardTruth

WORTH_PLANTING = 1.5
"""A regression is planted once a model has so many times the strength that it shall lose."""


def digest(*parts: str | int) -> str:
    """Return 64 hexadecimal digits that stand for what real parameters or rows would hash to."""
    return sha256("/".join(map(str, parts)).encode()).hexdigest()


class ConfigTruth:
    """One configuration: how it learns, and when its data is poor or its model silently gets worse."""

    def __init__(self, plant: PlantSettings, key: str, seed: int, end_us: int) -> None:
        self.pupil = Pupil(plant, key, stream(seed, "pupil", key))
        self.poor: tuple[Episode, ...] = draw_episodes(plant.troubles.poor_configs, end_us, stream(seed, "poor", key))
        self.planned = draw_times(plant.regressions.planted_per_day, end_us, stream(seed, "planted", key))


class World:
    """The truth that the modelled cluster acts on, and that no controller sees.

    Args:
        plant: the parameters.
        seed: decides everything that is drawn.
        end_us: when the simulation ends.
    """

    def __init__(self, plant: PlantSettings, seed: int, end_us: int) -> None:
        self.plant, self.seed = plant, seed
        self.models: dict[ModelHash, ModelTruth] = {}
        self.planted = 0
        self._end_us = end_us
        self._shards: dict[ShardKey, ShardTruth] = {}
        self._configs: dict[str, ConfigTruth] = {}

    def config(self, key: str) -> ConfigTruth:
        """Return a configuration's truth."""
        if key not in self._configs:
            self._configs[key] = ConfigTruth(self.plant, key, self.seed, self._end_us)
        return self._configs[key]

    def poorness(self, key: str, now_us: int) -> float:
        """Return how poor all of a configuration's data is at a time, in [0, 1]."""
        return severity_at(self.config(key).poor, now_us)

    def store(self, key: ShardKey, truth: ShardTruth) -> None:
        """Keep the truth of a shard until it is trained on."""
        self._shards[key] = truth

    def shard(self, key: ShardKey) -> ShardTruth:
        """Return the truth of a shard that was not trained on yet."""
        return self._shards[key]

    def train(self, key: str, request: TrainingRequested, request_id: EventId, now_us: int) -> ModelHash | None:
        """Make a new model; ``None`` when the training diverges. The shards are used up either way."""
        model = ModelHash(digest("model", key, request_id))
        if request.base_model is None:
            self.models[model] = ModelTruth()
            return model
        base = self.models[request.base_model]
        shards = [self._shards.pop(shard.key) for shard in request.shards]
        child = self.config(key).pupil.trained(base, shards, request.learning_rate, request.epochs)
        if child is None:
            return None
        self.models[model] = self._spoilt(key, child, request.base_model, now_us)
        return model

    def _spoilt(self, key: str, child: ModelTruth, parent: ModelHash, now_us: int) -> ModelTruth:
        """Plant a regression if one is due: weaker against everybody, except against the model that it replaces."""
        settings, planned = self.plant.regressions, self.config(key).planned
        if not planned or now_us < planned[0] or child.trend < WORTH_PLANTING * settings.planted_elo:
            return child
        planned.pop(0)
        self.planted += 1
        exploit = Exploit(parent, settings.planted_elo + settings.planted_exploit_elo)
        return replace(
            child, trend=child.trend - settings.planted_elo, exploit=exploit, planted=(*child.planted, self.planted)
        )

    def difference(self, model: ModelHash, opponent: ModelHash | None) -> float:
        """Return by how many Elo a model plays better than another, or than the random bot."""
        hero = self.models[model]
        if opponent is None:
            return hero.skill
        other = self.models[opponent]
        edge = hero.exploit.elo if hero.exploit and hero.exploit.opponent == opponent else 0.0
        against = other.exploit.elo if other.exploit and other.exploit.opponent == model else 0.0
        return hero.skill - other.skill + edge - against
