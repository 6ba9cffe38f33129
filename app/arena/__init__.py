"""Games between policies: matches and gauntlets. A snapshot is played; nothing here trains."""

from app.arena.hands import HandsPlan, compare_hands, play_hands
from app.arena.manager import EvaluationManager
from app.arena.match import MatchPlan, play_match, play_rotations

__all__ = [
    "EvaluationManager",
    "HandsPlan",
    "MatchPlan",
    "compare_hands",
    "play_hands",
    "play_match",
    "play_rotations",
]
