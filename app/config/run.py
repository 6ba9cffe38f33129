"""Settings of a run and of its league, which RUN_CONFIGURED, the first event of a journal, records."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from flyball.app.config.base import FrozenModel
from flyball.app.config.controllers import ControllerName, ControllerSettings, Knob
from flyball.app.config.feedback import MAX_SECONDS, FeedbackSettings, Seconds, Share
from flyball.app.config.games import GAMES
from flyball.app.config.settings import LANGUAGE_BACKEND, GameConfig
from flyball.app.core import ConfigKey, FlyballError, Name, is_broker

LAPTOP: tuple[ConfigKey, ...] = tuple(
    ConfigKey(key) for key in ("tic_tac_toe_2p", "connect_four_2p", "breakthrough6_2p", "hex7_2p", "oh_hell_3p")
)
"""Configurations that suit two cores."""

LANGUAGE: tuple[ConfigKey, ...] = tuple(key for key, config in GAMES.items() if config.backend == LANGUAGE_BACKEND)
"""Configurations that language models play."""

PROFILES: dict[str, tuple[ConfigKey, ...]] = {
    "laptop": LAPTOP,
    "full": tuple(key for key in GAMES if key not in LANGUAGE),  # language models need packages of their own
    "language": tuple(key for key in LANGUAGE if key != "diplomacy_7p"),  # whose prompts are too long for two cores
}


class ForeignSettings(FlyballError, code="usage"):
    """Recorded settings are unknown to this version, or not from the broker."""


class DeadlineSettings(FrozenModel):
    """Deadlines for one attempt at a job, in seconds.

    A process that exceeds its deadline is killed and replaced. Deadlines are generous, because they are for jobs that
    hang. The deadline of a batch of evaluation games is ``evaluation.batch_seconds`` of its game.
    """

    selfplay_seconds: Seconds = Field(7200.0, description="self-play of one request")
    inspection_seconds: Seconds = Field(600.0, description="inspection of a shard")
    training_seconds: Seconds = Field(7200.0, description="one training")
    distribution_seconds: Seconds = Field(600.0, description="distribution of a model")


Curve = Literal["even", "hard", "var"]
"""Weight of a category's member for a win probability p: 1, (1 - p)^2, or p (1 - p)."""


class AdmissionSettings(FrozenModel):
    """The geometric admission schedule, and retention. Steps are trainings."""

    founders: int = Field(2, ge=1, description="checkpoints admitted before the schedule applies")
    recent_every: int = Field(10, ge=1, description="steps between recent checkpoints")
    recent_for: int = Field(100, ge=1, description="steps after which a recent checkpoint retires")
    anchor_every: int = Field(100, ge=1, description="steps between anchors, which never retire")
    lasting_elo: float = Field(
        300.0, gt=0, description="Elo above the newest lasting anchor (at first the random bot) for the next one"
    )
    elite_margin: float = Field(50.0, ge=0, description="Elo above the best rating for a new elite")
    capacity: int = Field(64, ge=1, description="checkpoints; anchors, elites and the current model stay beyond it")
    remembered_for: int = Field(500, ge=0, description="steps that a retired checkpoint's games are kept")


class MatchmakingSettings(FrozenModel):
    """Shares of the opponent categories.

    The share of an empty category goes to the others in proportion. By default the model mostly plays itself, because
    the seats of opponents bring no rows to train on. ``prioritised`` is AlphaStar's: the whole league, weighted by
    ``curve`` (Vinyals et al. 2019).
    """

    mirror: float = Field(0.9, ge=0, description="share of games against itself")
    peers: float = Field(0.05, ge=0, description="share of opponents of about its strength")
    exploitable: float = Field(0.03, ge=0, description="share of opponents that used to win, and now should lose")
    baselines: float = Field(0.02, ge=0, description="share of bots")
    prioritised: float = Field(0.0, ge=0, description="share of opponents from the whole league, weighted by curve")
    curve: Curve = Field("even", description="weights within peers, exploitable and prioritised")
    peer_elo: float = Field(100.0, gt=0, description="largest Elo difference of peers")
    prior_games: float = Field(10.0, gt=0, description="weight of the ratings' prediction, in games")
    lost_games: int = Field(10, ge=1, description="games before an opponent counts as formerly winning")
    cold_start: int = Field(0, ge=0, description="league size from which on others than baselines are opponents")

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if not self.mirror + self.peers + self.exploitable + self.baselines + self.prioritised > 0:
            raise ValueError("all shares of matchmaking are 0: give at least one category a share")
        return self


MATCHMAKING: dict[str, MatchmakingSettings] = {
    "mostly_mirror": MatchmakingSettings(),
    "balanced": MatchmakingSettings(mirror=0.3, peers=0.4, exploitable=0.2, baselines=0.1, cold_start=2),
    "alphastar": MatchmakingSettings(
        mirror=0.35, peers=0, exploitable=0, baselines=0, prioritised=0.65, curve="hard", cold_start=0
    ),
    "alphastar_var": MatchmakingSettings(
        mirror=0.35, peers=0, exploitable=0, baselines=0, prioritised=0.65, curve="var", cold_start=0
    ),
    "mirror": MatchmakingSettings(mirror=1, peers=0, exploitable=0, baselines=0, cold_start=0),
}
"""Presets. ``alphastar`` is the mix of AlphaStar's main agents; its forgotten players are part of ``prioritised``."""


class TournamentSettings(FrozenModel):
    """Matches among members of the league.

    Tournaments are played when nothing else is to be evaluated.
    """

    placement: int = Field(5, ge=0, description="members that a new one plays for its placement")
    games: int = Field(40, ge=2, le=10_000, description="games of each pairing")
    round_robin_every: int = Field(100, ge=0, description="steps between round robins; 0: none")


class LeagueSettings(FrozenModel):
    """Settings of the league.

    In ``flyball.toml``, ``matchmaking`` may be the name of a preset.
    """

    admission: AdmissionSettings = AdmissionSettings()
    matchmaking: MatchmakingSettings = MatchmakingSettings()
    tournaments: TournamentSettings = TournamentSettings()


Mode = Literal["govern", "advise"]
"""How a run uses its decisions: it asks for work and says which model is current, or it only advises (ADR-039)."""


class RunSettings(FrozenModel):
    """Settings of a run."""

    seed: int = Field(0, ge=0, lt=1 << 63, description="of all that is drawn in the run")
    mode: Mode = Field(
        "govern",
        description="advise: controllers decide beside a loop that goes on without them; nothing is asked of anybody, "
        "and verdicts on models are advice",
    )
    tick_seconds: float = Field(10.0, ge=1e-3, le=MAX_SECONDS, description="period of CLOCK_TICK")
    selfplay_workers: tuple[Name, ...] = Field(
        ("selfplay_worker@laptop",),
        min_length=1,
        description="workers of a simulation; a run asks those that have started; unset: this machine's",
    )
    min_quality: Share = Field(
        0.3, description="quality score below which a shard is not trained on; at most feedback.intensity.reduced"
    )
    deadlines: DeadlineSettings = DeadlineSettings()
    external_inspection: bool = Field(
        False,
        description="of backend external: participants inspect each shard; otherwise all count, with quality 1",
    )
    feedback: FeedbackSettings = FeedbackSettings()
    league: LeagueSettings = LeagueSettings()
    controllers: dict[ControllerName, ControllerSettings] = Field(
        {}, description="controllers of the user's own, by name"
    )
    configs: tuple[GameConfig, ...] = Field(tuple(GAMES[key] for key in LAPTOP), min_length=1)

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        keys = [config.key for config in self.configs]
        if len(set(keys)) < len(keys):
            raise ValueError(f"a configuration is named twice among {', '.join(sorted(keys))}")
        return self

    @model_validator(mode="after")
    def _check_backends(self) -> Self:
        ours = [config.key for config in self.configs if not config.is_external]
        if ours and len(ours) < len(self.configs):  # daemons of a kind share all jobs, and each can do only one sort
            raise ValueError(
                f"participants play, train and evaluate some configurations, and this installation {ours[0]}: give the "
                "configurations with backend external a run folder of their own"
            )
        return self

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        if self.advises and not self.is_external:
            raise ValueError(
                f'mode = "advise" is for a loop that goes on elsewhere, and {self.configs[0].key} is played and '
                'trained here: set backend = "external" for each game'
            )
        return self

    @field_validator("controllers")
    @classmethod
    def _check_owners(cls, controllers: dict[str, ControllerSettings]) -> dict[str, ControllerSettings]:
        owners: dict[Knob, str] = {}
        for name, table in controllers.items():
            for knob in table.takes_over:
                if (other := owners.setdefault(knob, name)) != name:
                    raise ValueError(f"{other} and {name} both take over {knob}: only one controller may own it")
        return controllers

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
        """Configurations by key; cached, because controllers look them up at every event."""
        return {config.key: config for config in self.configs}

    @cached_property
    def taken_over(self) -> dict[Knob, str]:
        """The user's own controllers, by the knobs that they take over."""
        return {knob: name for name, table in self.controllers.items() for knob in table.takes_over}

    @property
    def advises(self) -> bool:
        """True if the run only advises an observed loop."""
        return self.mode == "advise"

    @property
    def is_external(self) -> bool:
        """True if participants play, train and evaluate the configurations."""
        return self.configs[0].is_external

    def __contains__(self, key: object) -> bool:
        """Return whether this run plays a configuration; its journal may be about earlier ones, too."""
        return key in self.by_key

    def config(self, key: str) -> GameConfig:
        """Return the configuration called ``key``; ``KeyError`` when this run has none."""
        return self.by_key[ConfigKey(key)]
