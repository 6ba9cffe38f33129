"""Iterations of a training run, as sinks receive them."""

from datetime import UTC, datetime, timedelta

import numpy as np

from flyball.app.config import NetworkSettings
from flyball.app.core import NetworkShape
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import init_policy
from flyball.app.train.iteration import Distributions, Evaluation, Iteration

NETWORK = NetworkSettings(hidden=(6, 4))
PPO = {
    "value_loss": 0.05,
    "entropy": 1.5,
    "approx_kl": 0.004,
    "clip_fraction": 0.1,
    "explained_variance": 0.3,
    "gradient_norm": 0.4,
    "learning_rate": 3e-4,
    "entropy_coef": 0.01,
    "epochs": 4.0,
}
"""Metrics of an update by PPO, except its policy loss."""

SECONDS = {"collect": 1.0, "advantages": 0.25, "update": 2.0, "evaluate": 0.5, "checkpoint": 0.25}
SECONDS |= {"total": 4.0, "processor": 3.5}


class StillClock:
    """A clock that advances by a minute at each reading."""

    def __init__(self) -> None:
        self.minutes = 0

    def now(self) -> datetime:
        self.minutes += 1
        return datetime(2026, 1, 31, 12, tzinfo=UTC) + timedelta(minutes=self.minutes)

    def monotonic(self) -> float:
        return 60.0 * self.minutes


def policy(seed: int = 0) -> Policy:
    shape = NetworkShape(5, 3)
    return Policy(NETWORK, shape, init_policy(NETWORK, shape, seed))


def iteration(number: int, *, best: bool = False, points: float | None = 6.25, **changes) -> Iteration:
    rng = np.random.default_rng(number)
    evaluation = Evaluation(
        opponent="normal",
        games=400,
        outcome=0.01 * number,
        stderr=0.02,
        win_share=0.25,
        points=points,
        moon_rate=None if points is None else 0.02,
    )
    values = {
        "number": number,
        "games": 256,
        "rows": 11000,
        "mean_return": 0.0,
        "mean_points": 6.7,
        "metrics": PPO | {"policy_loss": -0.01 / number},
        "evaluation": evaluation,
        "best": best,
        "recovered": False,
        "seconds": SECONDS,
        "distributions": Distributions(
            policy=policy(),
            logits=rng.normal(size=300).astype(np.float32),
            values=rng.normal(size=100).astype(np.float32),
            advantages=rng.normal(size=100).astype(np.float32),
            gradients={"trunk.0.weight": 0.3, "policy_head.weight": 0.1},
        ),
    }
    return Iteration(**(values | changes))
