"""Rows that a configuration's training needs: their number and quality.

Where several machines play, more games per iteration mean more requests, not longer ones, because more workers then
play in parallel, and less is lost when a worker fails or the model is replaced (measured, ADR-020).
"""

from math import ceil

from flyball.app.config import DEFAULT_BACKEND, GameConfig, RunSettings
from flyball.app.controllers.lineage import REMEMBERED
from flyball.app.controllers.state import FeedbackState
from flyball.app.core import ModelHash
from flyball.app.events import Row, ShardRef


def rows_needed(state: FeedbackState, settings: RunSettings) -> float | None:
    """Return how many rows are enough for a training; ``None`` while training is paused."""
    if state.training_intensity == "paused":
        return None
    return _rows(state, settings, getattr(settings.feedback.trigger, state.training_intensity))


def most_rows(state: FeedbackState, settings: RunSettings) -> int:
    """Return the most rows that a training takes, at any intensity."""
    shares = settings.feedback.trigger
    share = max(shares.hot_path, shares.accelerated, shares.normal, shares.reduced, shares.most_rows_factor)
    return ceil(_rows(state, settings, share))


def latest_shards(
    state: FeedbackState, settings: RunSettings, shards: tuple[ShardRef, ...], windows: int = 1
) -> tuple[ShardRef, ...]:
    """Drop the oldest shards that no training needs.

    The remaining shards have at least ``windows`` * ``most_rows`` rows, if there are so many. Without this limit shards
    would pile up while training pauses and games go on.
    """
    return _latest(shards, windows * most_rows(state, settings))


REPLAYED_SHARE = 0.25
"""Share of all rows so far that is replayed, up to whole shards: the first models' games mislead later ones."""


class ReplayBuffer(Row, frozen=True):
    """Shards of a configuration's earlier trainings, from which later ones learn again.

    Attributes:
        shards: the latest ones, oldest first.
        rows: of all trainings so far, also of shards that have been dropped.
    """

    shards: tuple[ShardRef, ...] = ()
    rows: int = 0

    def plus(self, shards: tuple[ShardRef, ...], config: GameConfig) -> "ReplayBuffer":
        """Add a training's shards, and drop the oldest.

        The remaining shards hold ``replay_rows`` rows or ``REPLAYED_SHARE`` of all rows, whichever is less, up to whole
        shards.
        """
        rows = self.rows + sum(shard.rows for shard in shards)
        most = min(config.replay_rows or 0, int(REPLAYED_SHARE * rows))
        return ReplayBuffer(shards=_latest((*self.shards, *shards), most), rows=rows)


def _latest(shards: tuple[ShardRef, ...], rows: int) -> tuple[ShardRef, ...]:
    """Drop the oldest shards that are not needed for ``rows`` rows."""
    spare = sum(shard.rows for shard in shards) - rows
    first = 0
    while first < len(shards) and shards[first].rows <= spare:
        spare -= shards[first].rows
        first += 1
    return shards[first:]


def late_champions(settings: RunSettings, key: str) -> int:
    """Return the number of champions before the playing one whose rows a configuration may train on.

    PPO weighs them by the log-probabilities that they were played with. Nobody knows whether a trainer of the user's
    own does so, or another backend.
    """
    config = settings.config(key)
    if config.replays:
        return REMEMBERED
    is_ppo = config.backend == DEFAULT_BACKEND and config.trainer is None and config.train_command is None
    return settings.feedback.trigger.staleness if is_ppo else 0


def is_fresh(state: FeedbackState, settings: RunSettings, model: ModelHash | None) -> bool:
    """Return whether rows of a model may start a training.

    The model must be the one that plays, or one of the champions before it (``late_champions``).
    """
    models = [champion.model for champion in state.lineage.champions]
    playing = state.lineage.playing
    if model == playing:
        return True
    if settings.config(state.config_key).replays:
        return model in models
    last = models.index(playing) if playing in models else 0
    return model in models[max(0, last - late_champions(settings, state.config_key)) : last]


def is_usable(state: FeedbackState, settings: RunSettings, score: float) -> bool:
    """Return whether a shard of this quality may be trained on."""
    return score >= state.parameter("quality_threshold", settings)


def _rows(state: FeedbackState, settings: RunSettings, share: float) -> float:
    config = settings.config(state.config_key)
    games = state.parameter("games_per_iteration", settings)
    return config.rows_per_training * share * games / config.selfplay.games_per_request
