"""Simple strong players for some games: what they prefer follows from the observation and the mask alone.

They see what a model sees, so the same seat at the same table can be given to either, and none sees hidden cards. What
they return are log-weights: differences of a few make a choice all but certain, those below 1 leave it open, so that
games seldom repeat.
"""

from app.games.heuristics.breakthrough import breakthrough_heuristic
from app.games.heuristics.chinese_checkers import chinese_checkers_heuristic
from app.games.heuristics.connect_four import connect_four_heuristic

__all__ = [
    "breakthrough_heuristic",
    "chinese_checkers_heuristic",
    "connect_four_heuristic",
]
