"""The settings of a run, the first event of its journal (RUN_CONFIGURED)."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from app.config.feedback import MAX_SECONDS, FeedbackSettings, Seconds, Share
from app.config.games import GAMES
from app.config.league import LeagueSettings
from app.config.settings import GameConfig, Settings
from app.core import ConfigKey, FlyballError, Name, is_broker

LAPTOP: tuple[ConfigKey, ...] = tuple(
    ConfigKey(key) for key in ("tic_tac_toe_2p", "connect_four_2p", "breakthrough6_2p", "hex7_2p", "oh_hell_3p")
)
"""Configurations that suit two cores."""

PROFILES: dict[str, tuple[ConfigKey, ...]] = {"laptop": LAPTOP, "full": tuple(GAMES)}


class ForeignSettings(FlyballError):
    """Recorded settings are unknown to this version, or not from the broker."""


class DeadlineSettings(Settings):
    """Seconds for one attempt at a job, after which its process is killed and replaced.

    They are generous, because a deadline is for jobs that hang. The deadline of a batch of evaluation games is
    ``evaluation.batch_seconds`` of its game.
    """

    selfplay_seconds: Seconds = Field(7200.0, description="self-play of one request")
    inspection_seconds: Seconds = Field(600.0, description="inspection of a shard")
    training_seconds: Seconds = Field(7200.0, description="one training")
    distribution_seconds: Seconds = Field(600.0, description="distribution of a model")


class RunSettings(Settings):
    """Settings of a run."""

    seed: int = Field(0, ge=0, lt=1 << 63)
    tick_seconds: float = Field(10.0, ge=1e-3, le=MAX_SECONDS, description="period of CLOCK_TICK")
    selfplay_workers: tuple[Name, ...] = Field(("selfplay_worker@laptop",), min_length=1)
    min_quality: Share = Field(
        0.3, description="quality score below which a shard is not trained on; at most feedback.intensity.reduced"
    )
    deadlines: DeadlineSettings = DeadlineSettings()
    feedback: FeedbackSettings = FeedbackSettings()
    league: LeagueSettings = LeagueSettings()
    configs: tuple[GameConfig, ...] = Field(tuple(GAMES[key] for key in LAPTOP), min_length=1)

    @model_validator(mode="after")
    def _keys_differ(self) -> Self:
        keys = [config.key for config in self.configs]
        if len(set(keys)) < len(keys):
            raise ValueError(f"a configuration is named twice among {', '.join(sorted(keys))}")
        return self

    @classmethod
    def recorded(cls, settings: Mapping[str, Any], source: str) -> Self:
        """Return the settings in a RUN_CONFIGURED that ``source`` published. Raises ``ForeignSettings``."""
        if not is_broker(source):
            raise ForeignSettings(
                f"{source} published settings of the run; only the broker may.", hint="Nothing to do: they are ignored."
            )
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ForeignSettings(
                f"Another version of flyball recorded this run: {'.'.join(map(str, first['loc']))}: {first['msg']}.",
                hint="Read it with that version, or begin a new run in another folder.",
            ) from error

    @cached_property
    def by_key(self) -> dict[ConfigKey, GameConfig]:
        """The configurations by key, cached because controllers look them up at every event."""
        return {config.key: config for config in self.configs}

    def __contains__(self, key: object) -> bool:
        """Return whether this run plays a configuration; its journal may hold events about earlier ones."""
        return key in self.by_key

    def config(self, key: str) -> GameConfig:
        """Return the configuration called ``key``; ``KeyError`` when this run has none."""
        return self.by_key[ConfigKey(key)]
