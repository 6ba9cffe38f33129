"""Training: advantages, PPO, and the jobs that make models."""

from app.training.checks import UnfitData
from app.training.cloning import CloningMetrics
from app.training.first import first_model
from app.training.gae import UnfinishedEpisode
from app.training.job import InitialiseSpec, TrainSpec
from app.training.learner import Improvement, imitate, improve
from app.training.ppo import EpochMetrics, TrainingDiverged
from app.training.preparing import prepare
from app.training.samples import Samples, explained_variance, make_samples

__all__ = [
    "CloningMetrics",
    "EpochMetrics",
    "Improvement",
    "InitialiseSpec",
    "Samples",
    "TrainSpec",
    "TrainingDiverged",
    "UnfinishedEpisode",
    "UnfitData",
    "explained_variance",
    "first_model",
    "imitate",
    "improve",
    "make_samples",
    "prepare",
]
