"""Reports of a training run's iterations, and their sinks."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.learning.inference import Policy

Floats = NDArray[np.float32]
PHASES = ("collect", "advantages", "update", "evaluate", "checkpoint")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One hero against copies of one opponent in all other seats, seats rotated."""

    opponent: str  # ``random``, ``heuristic``, or a level of the game's bots, for instance ``normal``
    games: int  # that were played
    outcome: float  # mean outcome of the hero, in [-1, 1]; higher is better, and 0 is what equals get
    stderr: float  # of ``outcome``, from the rotations: games of one rotation share their deal
    win_share: float  # mean share of the win, in [0, 1]; who is best alone has all of it, ties split it
    points: float | None = None  # mean points a hand, where the game counts them (Hearts: lower is better)
    moon_rate: float | None = None  # share of the hands in which the hero took all points, where the game counts them

    def __str__(self) -> str:
        points = "" if self.points is None else f"{self.points:.2f} points a hand, "
        return (
            f"{points}outcome {self.outcome:+.4f} ± {self.stderr:.4f}, win share {self.win_share:.3f} "
            f"in {self.games} games against {self.opponent}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Distributions:
    """Data of histograms: a sample of the iteration's rows under the resulting policy."""

    logits: Floats  # [K] of the legal actions of all sampled rows, as the network says them
    values: Floats  # [N] the critic's
    advantages: Floats  # [N] as estimated, before they were normalised
    gradients: Mapping[str, float]  # the norm of each layer's gradient in the last batch, by the parameter's name


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long each phase took on the wall clock, and all of them together on the processors."""

    collect: float
    advantages: float
    update: float
    evaluate: float
    checkpoint: float
    processor: float

    @property
    def total(self) -> float:
        """All phases on the wall clock."""
        return float(sum(getattr(self, phase) for phase in PHASES))


@dataclass(frozen=True, slots=True, eq=False)
class Iteration:
    """One iteration: collect, advantages, update, evaluate, checkpoint."""

    number: int  # from 1
    games: int  # played in it
    rows: int  # decisions recorded in them
    mean_return: float  # mean outcome of the recorded seats, in [-1, 1]
    mean_points: float | None  # mean points a hand of the recorded seats, where the game counts them
    policy_loss: float  # the clipped surrogate, as a loss; this and what follows are means over the last epoch
    value_loss: float  # mean squared error, clipped
    entropy: float  # of the policy over legal actions, nats
    approx_kl: float  # from the policy that played to the one that learns, nats
    clip_fraction: float  # share of rows whose ratio was clipped
    explained_variance: float | None  # of the returns, by the critic that played; None when they do not vary
    gradient_norm: float  # mean over the batches, before clipping
    learning_rate: float  # that was used
    entropy_coef: float  # that was used
    epochs: int  # that were made before the KL divergence stopped them
    evaluation: Evaluation | None  # None where none was due
    best: bool  # this iteration's evaluation is the best so far, and its policy was kept
    recovered: bool  # the update diverged and was thrown away; the policy is that of the iteration before
    seconds: Seconds  # what it took
    distributions: Distributions  # for histograms


class Sink:
    """Base of what receives a run's iterations: curves, tables, lines on a terminal."""

    def begin(self, evaluation: Evaluation) -> None:
        """Take the first policy's evaluation; it comes again if the run stops before its first checkpoint."""

    def write(self, iteration: Iteration, policy: Policy) -> None:
        """Take an iteration and its resulting policy.

        A resumed run repeats the iterations after its last checkpoint, so a number may come again.
        """

    def close(self) -> None:
        """Write what is left. Nothing is written afterwards."""
