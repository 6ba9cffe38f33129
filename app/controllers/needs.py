"""How many fresh rows of which quality a training of a configuration needs: scheduler and trigger must agree."""

from math import ceil

from app.config import RunSettings
from app.controllers.knobs import bounded
from app.events import (
    AdaptiveParamsChanged,
    HyperparameterUpdated,
    Intensity,
    Payload,
    Row,
    ShardRef,
    TrainingIntensityChanged,
)

US = 1_000_000


class Needs(Row, frozen=True):
    """A configuration's needs after decisions; ``None``: as configured.

    More games per iteration are more requests, not longer ones: more workers play them side by side, and less is lost
    with a worker, or when the model is replaced (measured, ADR-012).
    """

    intensity: Intensity = "normal"
    games_per_iteration: int | None = None
    quality_threshold: float | None = None

    def after(self, data: Payload, settings: RunSettings, key: str) -> "Needs":
        """Return the needs as a decision leaves them; other events change nothing."""
        match data:
            case TrainingIntensityChanged(intensity=intensity):
                return self.replace(intensity=intensity)
            case AdaptiveParamsChanged(games_per_iteration=games):
                bound = int(bounded("games_per_iteration", games, settings, key))
                return self.replace(games_per_iteration=bound)
            case HyperparameterUpdated(parameter="quality_threshold", value=value):
                return self.replace(quality_threshold=value)
        return self

    def rows(self, settings: RunSettings, key: str) -> float | None:
        """Return how many rows are enough for a training; ``None`` while training is paused."""
        if self.intensity == "paused":
            return None
        return self._rows(settings, key, getattr(settings.feedback.trigger, self.intensity))

    def most_rows(self, settings: RunSettings, key: str) -> int:
        """Return how many rows are enough whatever the intensity: while training pauses, no more are kept."""
        shares = settings.feedback.trigger
        most = max(shares.hot_path, shares.accelerated, shares.normal, shares.reduced)
        return ceil(self._rows(settings, key, most))

    def latest(
        self, settings: RunSettings, key: str, shards: tuple[ShardRef, ...], windows: int = 1
    ) -> tuple[ShardRef, ...]:
        """Return the latest shards that hold ``windows`` times the most rows: while training pauses, games go on."""
        spare = sum(shard.rows for shard in shards) - windows * self.most_rows(settings, key)
        first = 0
        while shards[first].rows <= spare:
            spare -= shards[first].rows
            first += 1
        return shards[first:]

    def _rows(self, settings: RunSettings, key: str, share: float) -> float:
        config = settings.config(key)
        usual = config.selfplay.games_per_request
        return config.rows_per_training * share * (self.games_per_iteration or usual) / usual

    def usable(self, settings: RunSettings, key: str, score: float) -> bool:
        """Return whether a shard of this quality may be trained on."""
        wanted = settings.min_quality if self.quality_threshold is None else self.quality_threshold
        return score >= bounded("quality_threshold", wanted, settings, key)
