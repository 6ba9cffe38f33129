"""Settings of the league: admission, retention and matchmaking."""

from typing import Literal, Self

from pydantic import Field, model_validator

from app.config.settings import Settings

Curve = Literal["even", "hard", "var"]
"""Weight of a category's member for a win probability p: 1, (1 - p)^2, or p (1 - p)."""


class AdmissionSettings(Settings):
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


class MatchmakingSettings(Settings):
    """Shares of the categories; the shares of empty ones go to the others in proportion.

    ``prioritised`` is AlphaStar's: the whole league, weighted by ``curve`` (Vinyals et al. 2019).
    """

    mirror: float = Field(0.3, ge=0)
    peers: float = Field(0.4, ge=0)
    exploitable: float = Field(0.2, ge=0)
    baselines: float = Field(0.1, ge=0)
    prioritised: float = Field(0.0, ge=0)
    curve: Curve = Field("even", description="weights within peers, exploitable and prioritised")
    peer_elo: float = Field(100.0, gt=0, description="largest Elo difference of peers")
    prior_games: float = Field(10.0, gt=0, description="weight of the ratings' prediction, in games")
    lost_games: int = Field(10, ge=1, description="games before an opponent counts as formerly winning")
    cold_start: int = Field(2, ge=0, description="league size from which on others than baselines are opponents")

    @model_validator(mode="after")
    def _somebody_to_meet(self) -> Self:
        if not self.mirror + self.peers + self.exploitable + self.baselines + self.prioritised > 0:
            raise ValueError("all shares of matchmaking are 0: give at least one category a share")
        return self


MATCHMAKING: dict[str, MatchmakingSettings] = {
    "balanced": MatchmakingSettings(),
    "alphastar": MatchmakingSettings(
        mirror=0.35, peers=0, exploitable=0, baselines=0, prioritised=0.65, curve="hard", cold_start=0
    ),
    "alphastar_var": MatchmakingSettings(
        mirror=0.35, peers=0, exploitable=0, baselines=0, prioritised=0.65, curve="var", cold_start=0
    ),
    "mirror": MatchmakingSettings(mirror=1, peers=0, exploitable=0, baselines=0, cold_start=0),
}
"""Presets. ``alphastar`` is the mix of AlphaStar's main agents; its forgotten players are among the prioritised."""


class TournamentSettings(Settings):
    """Matches among members of the league, played when nothing else is to be evaluated."""

    placement: int = Field(10, ge=0, description="members that a new one plays for its placement")
    games: int = Field(40, ge=2, le=10_000, description="games of each pairing")
    round_robin_every: int = Field(100, ge=0, description="steps between round robins; 0: none")


class LeagueSettings(Settings):
    """Settings of the league. In ``flyball.toml``, ``matchmaking`` may be the name of a preset."""

    admission: AdmissionSettings = AdmissionSettings()
    matchmaking: MatchmakingSettings = MatchmakingSettings()
    tournaments: TournamentSettings = TournamentSettings()
