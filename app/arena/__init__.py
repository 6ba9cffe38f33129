"""Games between policies: matches and gauntlets. A snapshot is played; nothing here trains."""

from app.arena.manager import EvaluationManager
from app.arena.match import MatchPlan, play_match

__all__ = ["EvaluationManager", "MatchPlan", "play_match"]
