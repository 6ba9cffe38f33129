"""Training runs as one command: collect, advantages, PPO, evaluate, checkpoint, again and again."""

from app.pipeline.evaluating import described, final_evaluations
from app.pipeline.game import RunGame, UnfitSettings, run_game
from app.pipeline.iteration import Distributions, Evaluation, Iteration, Seconds, Sink
from app.pipeline.run import TooManyDivergences, TrainingRun
from app.pipeline.start import check_start
from app.pipeline.state import Best, NoRun, RunExists, RunHead, RunPlace, RunState

__all__ = [
    "Best",
    "Distributions",
    "Evaluation",
    "Iteration",
    "NoRun",
    "RunExists",
    "RunGame",
    "RunHead",
    "RunPlace",
    "RunState",
    "Seconds",
    "Sink",
    "TooManyDivergences",
    "TrainingRun",
    "UnfitSettings",
    "check_start",
    "described",
    "final_evaluations",
    "run_game",
]
