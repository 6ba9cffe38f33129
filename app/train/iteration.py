"""Iterations of a training run: games, updates, evaluations, and the sinks that receive them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, log10
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from flyball.app.learning.inference import Policy
from flyball.app.store import Checkpoint

D = TypeVar("D")
"""A backend's rows to learn from, or their key in the store."""

E = TypeVar("E")
"""A backend's kind of evaluation."""

Floats = NDArray[np.float32]
OUTCOME_DIGITS = 4
"""Digits after the point of an outcome in [-1, 1], in texts."""

PHASES = ("collect", "advantages", "update", "evaluate", "checkpoint")
"""Phases of an iteration; with search, ``advantages`` is the reading of the replayed shards."""


def outcome_text(outcome: float, scale: float, sign: str = "+") -> str:
    """Return an outcome in the game's own units, with the digits of 0.0001 in [-1, 1].

    Args:
        outcome: in [-1, 1], as in training, or a standard error of such outcomes.
        scale: how many of the game's own units an outcome of 1 is; see ``TableSpec.outcome_scale``.
        sign: of the format; empty for errors.
    """
    digits = max(0, OUTCOME_DIGITS - max(0, ceil(log10(scale))))
    return f"{outcome * scale:{sign}z.{digits}f}"


@dataclass(frozen=True, slots=True, eq=False)
class Games(Generic[D]):
    """An iteration's games to learn from."""

    games: int  # number of games
    rows: int  # number of decisions recorded in them
    shard: D  # these decisions
    mean_return: float | None = None  # mean outcome of the recorded seats, in [-1, 1]
    mean_points: float | None = None  # mean points a hand of the recorded seats, where the game counts them


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of a hero, whose seat rotates, against copies of one opponent in all other seats."""

    opponent: str  # ``random``, ``heuristic``, or a level of the game's bots, for instance ``normal``
    games: int  # number of games played
    outcome: float  # mean outcome of the hero, in [-1, 1]; higher is better, and 0 is what equals get
    stderr: float  # of ``outcome``, from the rotations: games of one rotation share their deal
    win_share: float  # mean share of the win, in [0, 1]; a single best seat has all of it, a tie splits it
    points: float | None = None  # mean points a hand, where the game counts them (Hearts: lower is better)
    moon_rate: float | None = None  # share of the hands in which the hero took all points, where the game counts them

    def text(self, scale: float) -> str:
        """Return the results as text. The outcome is in the game's own units, of which 1 here is ``scale``."""
        points = "" if self.points is None else f"{self.points:.2f} points a hand, "
        outcome = f"outcome {outcome_text(self.outcome, scale)} ± {outcome_text(self.stderr, scale, '')}"
        return f"{points}{outcome}, win share {self.win_share:.3f} in {self.games} games against {self.opponent}"


@dataclass(frozen=True, slots=True, eq=False)
class Distributions:
    """Data of histograms, from a sample of the iteration's rows as the resulting policy sees them."""

    policy: Policy  # the resulting one
    logits: Floats  # [K] of the legal actions of all sampled rows, at temperature 1
    values: Floats  # [N] estimates of the critic
    advantages: Floats  # [N] as estimated, before normalisation; empty where none are estimated
    gradients: Mapping[str, float]  # the norm of each layer's gradient in the last batch, by the parameter's name


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """Result of an update."""

    policy: Checkpoint  # the new policy; the old one where the update diverged
    metrics: Mapping[str, float]  # see ``Iteration``
    complaint: str | None = None  # why the update was discarded; None where it was not
    distributions: Callable[[], Distributions] | None = None  # for histograms, if there are any


@dataclass(frozen=True, slots=True, eq=False)
class Iteration(Generic[E]):
    """Report of one iteration.

    Its ``metrics`` are named floats. Losses, entropy, KL divergence, divergence and clip fraction are means over the
    last epoch; an update that was discarded may lack them.

    - all networks: ``policy_loss`` (PPO's clipped surrogate, or the cross-entropy of the searches' policies under the
      network), ``value_loss`` (mean squared error; PPO's is clipped), ``entropy`` (of the policy over legal actions,
      nats), ``gradient_norm`` (mean over the batches, before clipping), ``learning_rate``, ``epochs`` (that were made);
    - PPO: ``approx_kl`` (from the policy that played to the one that learns, nats), ``clip_fraction`` (share of rows
      whose ratio was clipped), ``explained_variance`` (share of the targets' variance, by the critic that played;
      absent if they are constant), ``entropy_coef``;
    - search: ``divergence`` (of the network's policy from the searches', nats), ``replayed_rows`` (of earlier
      iterations that could be drawn);
    - language models: those of the job ``flyball.app.language.jobs.train``.
    """

    number: int  # from 1
    games: int  # this and the next three are those of ``Games``
    rows: int
    mean_return: float | None
    mean_points: float | None
    metrics: Mapping[str, float]  # of the update, by name
    evaluation: E | None  # None if this iteration had no evaluation
    best: bool  # this iteration's evaluation is the best so far, and its policy was kept
    recovered: bool  # the update diverged and was discarded; the policy is that of the iteration before
    seconds: Mapping[str, float]  # wall time of each of ``PHASES`` and in ``total``; ``processor`` time in total
    distributions: Distributions | None  # for histograms, if there are any


class Sink(Generic[E]):
    """Base class of receivers of a run's iterations: curves, tables, terminal output."""

    def begin(self, evaluation: E) -> None:
        """Record the first policy's evaluation, perhaps again if the run stopped before its first checkpoint."""

    def write(self, iteration: Iteration[E]) -> None:
        """Record an iteration; a resumed run repeats those after its last checkpoint, so a number may be repeated."""

    def close(self) -> None:
        """Write pending records. Nothing is written afterwards."""
