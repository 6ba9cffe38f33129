"""Measurements within an iteration: time, and samples for histograms."""

from collections.abc import Mapping
from time import perf_counter, process_time

import numpy as np

from app.pipeline.iteration import Distributions, Seconds
from app.policy import Policy
from app.training import Samples

SAMPLED = 1024
"""Rows that histograms are made of."""


class Stopwatch:
    """Measures the phases of an iteration, one after another."""

    def __init__(self) -> None:
        self._last, self._processor = perf_counter(), process_time()
        self._laps: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """Say that a phase has just ended."""
        now = perf_counter()
        self._laps[phase] = now - self._last
        self._last = now

    def seconds(self) -> Seconds:
        """Return what the phases took. All of them must have been told."""
        return Seconds(**self._laps, processor=process_time() - self._processor)


def distributions_of(policy: Policy, samples: Samples, gradients: Mapping[str, float]) -> Distributions:
    """Return what histograms are made of, from rows spread evenly over ``samples``."""
    rows = np.linspace(0, len(samples) - 1, min(SAMPLED, len(samples))).astype(np.int64)
    outputs = policy.outputs(samples.obs[rows].numpy())
    mask = samples.mask[rows].numpy()
    return Distributions(
        logits=outputs[:, : policy.actions][mask],
        values=outputs[:, policy.actions],
        advantages=(samples.target - samples.value)[rows].numpy(),
        gradients=gradients,
    )
