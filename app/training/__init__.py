"""Training: advantages, PPO, and the jobs that make models."""

from app.training.checks import UnfitData
from app.training.gae import UnfinishedEpisode
from app.training.job import InitialiseSpec, TrainSpec
from app.training.learner import Improvement, improve
from app.training.ppo import EpochMetrics, TrainingDiverged
from app.training.samples import Samples, make_samples

__all__ = [
    "EpochMetrics",
    "Improvement",
    "InitialiseSpec",
    "Samples",
    "TrainSpec",
    "TrainingDiverged",
    "UnfinishedEpisode",
    "UnfitData",
    "improve",
    "make_samples",
]
