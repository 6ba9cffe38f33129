"""Evaluation as pure functions: whom to play, what the games say, how good experience is."""

from app.evaluation.gauntlet import RANDOM, Opponent, plan_gauntlet
from app.evaluation.matches import MatchStatistics, NoGames, game_scores, match_statistics, seat_wins
from app.evaluation.quality import QualityScore, ShardStatistics, quality_score
from app.evaluation.rating import OpponentScore, Prior, performance_rating

__all__ = [
    "RANDOM",
    "MatchStatistics",
    "NoGames",
    "Opponent",
    "OpponentScore",
    "Prior",
    "QualityScore",
    "ShardStatistics",
    "game_scores",
    "match_statistics",
    "performance_rating",
    "plan_gauntlet",
    "quality_score",
    "seat_wins",
]
