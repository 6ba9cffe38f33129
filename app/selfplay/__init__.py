"""Self-play: rollouts of many games at once, their shards, and the inspection of these."""

from app.selfplay.cache import PLAYERS, PlayerCache
from app.selfplay.draws import draw_points, number_streams
from app.selfplay.inspection import ForeignShard, InspectionResult, InspectionSpec
from app.selfplay.job import SelfplayResult, SelfplaySpec
from app.selfplay.lessons import play_lessons
from app.selfplay.players import HeuristicPlayer, NoHeuristic, Player, RandomPlayer, WrongModel, load_player
from app.selfplay.recorded import play_recorded
from app.selfplay.recording import NoExperience, ShardRecorder
from app.selfplay.repeats import RepeatedShard
from app.selfplay.rollout import HERO, Decisions, Outcomes, Recorder, Rollout, Schedule
from app.selfplay.seating import selfplay_schedule

__all__ = [
    "HERO",
    "PLAYERS",
    "Decisions",
    "ForeignShard",
    "HeuristicPlayer",
    "InspectionResult",
    "InspectionSpec",
    "NoExperience",
    "NoHeuristic",
    "Outcomes",
    "Player",
    "PlayerCache",
    "RandomPlayer",
    "Recorder",
    "RepeatedShard",
    "Rollout",
    "Schedule",
    "SelfplayResult",
    "SelfplaySpec",
    "ShardRecorder",
    "WrongModel",
    "draw_points",
    "load_player",
    "number_streams",
    "play_lessons",
    "play_recorded",
    "selfplay_schedule",
]
