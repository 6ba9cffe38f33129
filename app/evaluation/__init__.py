"""Evaluation as pure functions: whom to play, what the games say, how good experience is."""

from app.evaluation.batches import (
    ATTEMPTS,
    Batch,
    BatchResult,
    BatchSpec,
    GauntletResult,
    GauntletSpec,
    NothingPlayed,
    OpponentResult,
)
from app.evaluation.episodes import (
    Autoreset,
    Episode,
    EpisodeSummary,
    EvalState,
    NoEpisodes,
    NotFinite,
    StepResult,
    UnfinishedEpisodes,
    advance,
    begin_episodes,
    lower_median,
    summarise_episodes,
)
from app.evaluation.gauntlet import Opponent, plan_gauntlet
from app.evaluation.matches import (
    MatchGames,
    MatchStatistics,
    NoGames,
    count_rotations,
    game_scores,
    match_games,
    match_statistics,
    seat_wins,
)
from app.evaluation.quality import QualityScore, ShardStatistics, quality_score
from app.evaluation.rating import OpponentScore, Prior, performance_rating
from app.evaluation.repetition import CERTAIN, repeated_games, repetition_evidence
from app.evaluation.trajectory import trajectory_rows

__all__ = [
    "ATTEMPTS",
    "CERTAIN",
    "Autoreset",
    "Batch",
    "BatchResult",
    "BatchSpec",
    "Episode",
    "EpisodeSummary",
    "EvalState",
    "GauntletResult",
    "GauntletSpec",
    "MatchGames",
    "MatchStatistics",
    "NoEpisodes",
    "NoGames",
    "NotFinite",
    "NothingPlayed",
    "Opponent",
    "OpponentResult",
    "OpponentScore",
    "Prior",
    "QualityScore",
    "ShardStatistics",
    "StepResult",
    "UnfinishedEpisodes",
    "advance",
    "begin_episodes",
    "count_rotations",
    "game_scores",
    "lower_median",
    "match_games",
    "match_statistics",
    "performance_rating",
    "plan_gauntlet",
    "quality_score",
    "repeated_games",
    "repetition_evidence",
    "seat_wins",
    "summarise_episodes",
    "trajectory_rows",
]
