"""Training runs as one command: collect, advantages, PPO, evaluate, checkpoint, again and again."""

from app.pipeline.iteration import Distributions, Evaluation, Iteration, Seconds, Sink

__all__ = ["Distributions", "Evaluation", "Iteration", "Seconds", "Sink"]
