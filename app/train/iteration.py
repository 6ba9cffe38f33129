"""Reports of a training run's iterations, and their sinks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.learning.inference import Policy

Floats = NDArray[np.float32]
PHASES = ("collect", "advantages", "update", "evaluate", "checkpoint")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One hero against copies of one opponent in all other seats, seats rotated.

    Attributes:
        opponent: ``random``, ``heuristic``, or a level of the game's bots, for instance ``normal``.
        games: that were played.
        outcome: mean outcome of the hero, in [-1, 1]; higher is better, and 0 is what equals get.
        stderr: of ``outcome``, from the rotations: games of one rotation share their deal.
        win_share: mean share of the win, in [0, 1]; who is best alone has all of it, ties split it.
        points: mean points a hand, where the game counts them (Hearts: lower is better), else None.
        moon_rate: share of the hands in which the hero took all points, where the game counts them, else None.
    """

    opponent: str
    games: int
    outcome: float
    stderr: float
    win_share: float
    points: float | None = None
    moon_rate: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Distributions:
    """Data of histograms: a sample of the iteration's rows under the resulting policy.

    Attributes:
        logits: [K] of the legal actions of all sampled rows, as the network says them.
        values: [N] the critic's.
        advantages: [N] as estimated, before they were normalised.
        gradients: the norm of each layer's gradient in the last batch, by the parameter's name.
    """

    logits: Floats
    values: Floats
    advantages: Floats
    gradients: Mapping[str, float]


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
    """One iteration: collect, advantages, update, evaluate, checkpoint.

    Attributes:
        number: from 1.
        games: played in it.
        rows: decisions recorded in them.
        mean_return: mean outcome of the recorded seats, in [-1, 1].
        mean_points: mean points a hand of the recorded seats, where the game counts them, else None.
        policy_loss: the clipped surrogate, as a loss; this and what follows are means over the last epoch.
        value_loss: mean squared error, clipped.
        entropy: of the policy over legal actions, nats.
        approx_kl: from the policy that played to the one that learns, nats.
        clip_fraction: share of rows whose ratio was clipped.
        explained_variance: of the returns, by the critic that played; None when they do not vary.
        gradient_norm: mean over the batches, before clipping.
        learning_rate: that was used.
        entropy_coef: that was used.
        epochs: that were made before the KL divergence stopped them.
        evaluation: None where none was due.
        best: this iteration's evaluation is the best so far, and its policy was kept.
        recovered: the update diverged and was thrown away; the policy is that of the iteration before.
        seconds: what it took.
        distributions: for histograms.
    """

    number: int
    games: int
    rows: int
    mean_return: float
    mean_points: float | None
    policy_loss: float
    value_loss: float
    entropy: float
    approx_kl: float
    clip_fraction: float
    explained_variance: float | None
    gradient_norm: float
    learning_rate: float
    entropy_coef: float
    epochs: int
    evaluation: Evaluation | None
    best: bool
    recovered: bool
    seconds: Seconds
    distributions: Distributions


class Sink(Protocol):
    """Takes iterations down: curves, tables, lines on a terminal."""

    def begin(self, evaluation: Evaluation) -> None:
        """Take down how good the first policy is, which is no iteration's, where there is a place for that.

        A run that was interrupted before its first checkpoint says so again.
        """
        ...

    def write(self, iteration: Iteration, policy: Policy) -> None:
        """Take down an iteration and the policy that came out of it.

        A run that is resumed repeats the iterations after its last checkpoint, so a number may come again.
        """
        ...

    def close(self) -> None:
        """Write what is left. Nothing is written afterwards."""
        ...
