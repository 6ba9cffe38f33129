"""Reports of a training run's iterations, and the sinks that receive them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.learning.inference import Policy

Floats = NDArray[np.float32]
PHASES = ("collect", "advantages", "update", "evaluate", "checkpoint")
"""Phases of an iteration; with search, ``advantages`` is the reading of the replayed shards."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of a hero against copies of one opponent.

    The opponent has all other seats; the hero's seat rotates.
    """

    opponent: str  # ``random``, ``heuristic``, or a level of the game's bots, for instance ``normal``
    games: int  # number of games played
    outcome: float  # mean outcome of the hero, in [-1, 1]; higher is better, and 0 is what equals get
    stderr: float  # of ``outcome``, from the rotations: games of one rotation share their deal
    win_share: float  # mean share of the win, in [0, 1]; a single best seat has all of it, a tie splits it
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
    """Data of histograms, from a sample of the iteration's rows.

    The rows are seen by the resulting policy.
    """

    logits: Floats  # [K] of the legal actions of all sampled rows, at temperature 1
    values: Floats  # [N] estimates of the critic
    advantages: Floats  # [N] as estimated, before normalisation; empty where none are estimated
    gradients: Mapping[str, float]  # the norm of each layer's gradient in the last batch, by the parameter's name


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall time of each phase, and processor time of all phases together."""

    collect: float
    advantages: float
    update: float
    evaluate: float
    checkpoint: float
    processor: float

    @property
    def total(self) -> float:
        """Wall time of all phases together."""
        return float(sum(getattr(self, phase) for phase in PHASES))


@dataclass(frozen=True, slots=True, eq=False)
class Iteration:
    """Report of one iteration.

    Its ``metrics`` are named floats. Losses, entropy, KL divergence, divergence and clip fraction are means over the
    last epoch; an update that was discarded may lack them.

    - both backends: ``policy_loss`` (PPO's clipped surrogate, or the cross-entropy of the searches' policies under the
      network), ``value_loss`` (mean squared error; PPO's is clipped), ``entropy`` (of the policy over legal actions,
      nats), ``gradient_norm`` (mean over the batches, before clipping), ``learning_rate``, ``epochs`` (that were made);
    - PPO: ``approx_kl`` (from the policy that played to the one that learns, nats), ``clip_fraction`` (share of rows
      whose ratio was clipped), ``explained_variance`` (share of the targets' variance, by the critic that played;
      absent if they are constant), ``entropy_coef``;
    - search: ``divergence`` (of the network's policy from the searches', nats), ``replayed_rows`` (of earlier
      iterations that could be drawn).
    """

    number: int  # from 1
    games: int  # number of games played in the iteration
    rows: int  # number of decisions recorded in these games
    mean_return: float  # mean outcome of the recorded seats, in [-1, 1]
    mean_points: float | None  # mean points a hand of the recorded seats, where the game counts them
    metrics: Mapping[str, float]  # of the update, by name
    evaluation: Evaluation | None  # None if this iteration had no evaluation
    best: bool  # this iteration's evaluation is the best so far, and its policy was kept
    recovered: bool  # the update diverged and was discarded; the policy is that of the iteration before
    seconds: Seconds
    distributions: Distributions  # for histograms


class Sink:
    """Base class of receivers of a run's iterations: curves, tables, terminal output."""

    def begin(self, evaluation: Evaluation) -> None:
        """Record the first policy's evaluation.

        It is called again if the run stops before its first checkpoint and is resumed.
        """

    def write(self, iteration: Iteration, policy: Policy) -> None:
        """Record an iteration and its resulting policy.

        A resumed run repeats the iterations after its last checkpoint, so a number may be repeated.
        """

    def close(self) -> None:
        """Write pending records. Nothing is written afterwards."""
