"""The numbers, distributions and texts of an iteration, by name."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.config import flatten
from app.learning.inference import Policy
from app.train.iteration import Evaluation, Iteration


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings as a table in Markdown."""
    rows = (f"| {name} | {value} |" for name, value in flatten(settings).items())
    return "\n".join(["| setting | value |", "|---|---|", *rows])


Floats = NDArray[np.float32]

LOSSES = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance", "gradient_norm")
KNOBS = ("learning_rate", "entropy_coef", "epochs")
COUNTS = ("games", "rows", "mean_return", "mean_points")
PHASES = ("collect", "advantages", "update", "evaluate", "checkpoint")


def scalars(iteration: Iteration) -> Iterator[tuple[str, float]]:
    """Yield names and values; those of the seed first, what is unknown left out.

    ``gradients/`` are the norms of the layers' gradients: one number a layer is a curve rather than a histogram.
    """
    named = {f"train/{name}": getattr(iteration, name) for name in (*LOSSES, *KNOBS)}
    named |= {f"collect/{name}": getattr(iteration, name) for name in COUNTS}
    named |= evaluated(iteration.evaluation) if iteration.evaluation else {}
    named |= {f"gradients/{name}": norm for name, norm in iteration.distributions.gradients.items()}
    named |= {f"seconds/{name}": getattr(iteration.seconds, name) for name in (*PHASES, "total", "processor")}
    named["train/recovered"] = float(iteration.recovered)
    return ((name, float(value)) for name, value in named.items() if value is not None)


def histograms(iteration: Iteration, policy: Policy) -> Iterator[tuple[str, Floats]]:
    """Yield names and values of any shape; what is empty, or holds something else than numbers, is left out."""
    found = iteration.distributions
    named = {
        "network/actor_logits": found.logits,
        "network/values": found.values,
        "network/advantages": found.advantages,
        **{f"weights/{name}": values for name, values in policy.weights().items()},
    }
    return ((name, values) for name, values in named.items() if values.size and np.isfinite(values).all())


def evaluated(evaluation: Evaluation) -> dict[str, float]:
    """Return names and values of an evaluation."""
    named = {
        "eval/avg_points": evaluation.points,
        "eval/win_rate": evaluation.win_share,
        "eval/outcome": evaluation.outcome,
        "eval/outcome_stderr": evaluation.stderr,
        "eval/moon_rate": evaluation.moon_rate,
    }
    return {name: value for name, value in named.items() if value is not None}
