"""Evaluation as pure functions: whom to play, what the games say, how good experience is."""

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
from app.evaluation.gauntlet import RANDOM, Opponent, plan_gauntlet
from app.evaluation.matches import MatchStatistics, NoGames, game_scores, match_statistics, seat_wins
from app.evaluation.quality import QualityScore, ShardStatistics, quality_score
from app.evaluation.rating import OpponentScore, Prior, performance_rating
from app.evaluation.repetition import CERTAIN, repeated_games, repetition_evidence

__all__ = [
    "CERTAIN",
    "RANDOM",
    "Autoreset",
    "Episode",
    "EpisodeSummary",
    "EvalState",
    "MatchStatistics",
    "NoEpisodes",
    "NoGames",
    "NotFinite",
    "Opponent",
    "OpponentScore",
    "Prior",
    "QualityScore",
    "ShardStatistics",
    "StepResult",
    "UnfinishedEpisodes",
    "advance",
    "begin_episodes",
    "game_scores",
    "lower_median",
    "match_statistics",
    "performance_rating",
    "plan_gauntlet",
    "quality_score",
    "repeated_games",
    "repetition_evidence",
    "seat_wins",
    "summarise_episodes",
]
