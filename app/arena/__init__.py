"""Games between policies: matches and gauntlets. A snapshot is played; nothing here trains."""

from app.arena.job import GauntletResult, GauntletSpec, OpponentResult
from app.arena.match import MatchPlan, play_match

__all__ = ["GauntletResult", "GauntletSpec", "MatchPlan", "OpponentResult", "play_match"]
