"""Self-play: rollouts of many games at once, their shards, and the inspection of these."""

from app.selfplay.inspection import ForeignShard, InspectionResult, InspectionSpec
from app.selfplay.job import SelfplayResult, SelfplaySpec
from app.selfplay.players import Player, RandomPlayer, WrongModel, load_player
from app.selfplay.recording import NoExperience, ShardRecorder
from app.selfplay.repeats import RepeatedShard
from app.selfplay.rollout import HERO, Decisions, Outcomes, Recorder, Rollout, Schedule

__all__ = [
    "HERO",
    "Decisions",
    "ForeignShard",
    "InspectionResult",
    "InspectionSpec",
    "NoExperience",
    "Outcomes",
    "Player",
    "RandomPlayer",
    "Recorder",
    "RepeatedShard",
    "Rollout",
    "Schedule",
    "SelfplayResult",
    "SelfplaySpec",
    "ShardRecorder",
    "WrongModel",
    "load_player",
]
