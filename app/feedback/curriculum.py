"""CurriculumIntegration: which share of self-play each configuration gets (seed 003 §4).

A configuration that improves faster, or has fewer games than the others, weighs more; one whose data is poor weighs
less. What is unknown counts neither way. Weights are clamped and average 1: the least of them is the floor below which
none starves.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import accumulate
from math import sqrt, tanh
from typing import ClassVar

from app.core import ConfigKey
from app.events import ClockTick, CurriculumRebalanced, Emission, Event, Payload, Row, Step
from app.feedback.controller import Controller
from app.feedback.state import FeedbackState, state_of

US = 1_000_000
ALL = ""
"""The one row: weights concern all configurations together."""


class CurriculumRow(Row, frozen=True):
    """The weights in force, and when they were last looked at."""

    weights: dict[ConfigKey, float]
    checked_us: int


def raw_weight(state: FeedbackState, mean_games: float, velocity_scale: float) -> float:
    """Return a configuration's weight before clamping; 1 when nothing is known.

    velocity: 1 + tanh(v / scale) for v > 0, so up to double; deficit: sqrt of mean games over own games, from one half
    to double; quality: from one half to 1.
    """
    velocity = 0.0 if state.elo_velocity is None else max(0.0, state.elo_velocity)
    deficit = min(2.0, max(0.5, sqrt((mean_games + 1) / (state.games_played + 1))))
    quality = 1.0 if state.quality_score is None else 0.5 + 0.5 * state.quality_score
    return (1 + tanh(velocity / velocity_scale)) * deficit * quality


def normalised(raw: Mapping[ConfigKey, float], minimum: float, maximum: float) -> dict[ConfigKey, float]:
    """Scale weights > 0 to average 1 with each within [minimum, maximum], where minimum <= 1 <= maximum."""
    ordered = sorted(raw.values())
    sums = list(accumulate(ordered, initial=0.0))

    def total(scale: float) -> float:
        """Return the sum of the clamped weights without looking at each: there may be ten thousand."""
        low, high = bisect_left(ordered, minimum / scale), bisect_right(ordered, maximum / scale)
        return minimum * low + scale * (sums[high] - sums[low]) + maximum * (len(ordered) - high)

    low, high = 0.0, maximum / ordered[0]
    for _ in range(60):  # bisection: the sum grows with the scale
        scale = (low + high) / 2
        low, high = (scale, high) if total(scale) < len(ordered) else (low, scale)
    return {key: min(maximum, max(minimum, weight * high)) for key, weight in raw.items()}


class CurriculumIntegration(Controller[CurriculumRow]):
    """Owns the curriculum weights."""

    name: ClassVar[str] = "CurriculumIntegration"
    row: ClassVar[type[CurriculumRow]] = CurriculumRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset({ClockTick})
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({CurriculumRebalanced})

    def step(
        self, rows: Mapping[str, CurriculumRow], event: Event[Payload], states: Mapping[str, FeedbackState]
    ) -> Step[CurriculumRow]:
        """Rebalance when it is time and the weights have changed enough."""
        limits = self.settings.feedback.curriculum
        row = rows.get(ALL) or CurriculumRow(weights={}, checked_us=event.recorded_us)
        if event.recorded_us - row.checked_us < limits.rebalance_seconds * US:
            return Step({} if ALL in rows else {ALL: row})
        keys = [config.key for config in self.settings.configs]
        known = {key: state_of(states, key) for key in keys}
        mean_games = sum(state.games_played for state in known.values()) / len(keys)
        raw = {key: raw_weight(state, mean_games, limits.velocity_scale) for key, state in known.items()}
        weights = normalised(raw, limits.minimum, limits.maximum)
        checked = row.model_copy(update={"checked_us": event.recorded_us})
        change = max(abs(weight - row.weights.get(key, 1.0)) for key, weight in weights.items())
        if change < limits.min_change:
            return Step({ALL: checked})
        reason = f"largest change {change:.2f}"
        return Step(
            {ALL: checked.model_copy(update={"weights": weights})},
            (Emission(CurriculumRebalanced(weights=weights, reason=reason)),),
        )
