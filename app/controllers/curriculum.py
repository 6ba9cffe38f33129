"""CurriculumIntegration: each configuration's share of self-play.

Each rating may change the weights, and a cooldown keeps them from swinging. The first rating only begins the cooldown,
because after a request or two all differences are chance.
A configuration that improves faster, or has played less than the others, weighs more; one whose data is poor weighs
less. An unknown velocity or quality is a factor of 1. Weights average 1, and the lower clamp prevents starvation.

All measures are relative to the other configurations, because Elo an hour depends on the cluster and on the stage of
learning. Self-play is counted in requests, because game lengths differ: a hundred games of 8 moves take as long as one
of 150.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import accumulate
from math import sqrt, tanh
from typing import ClassVar, NamedTuple

from app.controllers.controller import Controller
from app.controllers.state import FeedbackState, States, state_of
from app.core import SECOND_US, ConfigKey
from app.events import CurriculumRebalanced, Emission, EvaluationCompleted, Event, Payload, Row, Step, handles

ALL = ""
"""Key of the only row, because weights concern all configurations together."""


class CurriculumRow(Row, frozen=True):
    """Time of the latest change of weights, or of the first rating."""

    set_us: int


class Usual(NamedTuple):
    """Means over configurations: self-play requests played so far, and Elo/h gained.

    The velocity is at least ``least_velocity``, because otherwise noise sets the weights when no configuration gains.
    """

    requests: float
    velocity: float


def raw_weight(state: FeedbackState, requests: float, usual: Usual) -> float:
    """Return a configuration's weight before scaling and clamping.

    The weight is the product of three factors. Velocity v > 0: 1 + tanh(v / (2 usual v)), from 1 to 2. Deficit: square
    root of usual requests over its own, from 0.5 to 2. Quality: from 0.5 to 1.
    """
    ahead = _gain(state) / (2 * usual.velocity)
    deficit = min(2.0, max(0.5, sqrt((usual.requests + 1) / (requests + 1))))
    quality = 1.0 if state.quality_score is None else 0.5 + 0.5 * state.quality_score
    return (1 + tanh(ahead)) * deficit * quality


def _gain(state: FeedbackState) -> float:
    return 0.0 if state.elo_velocity is None else max(0.0, state.elo_velocity)


def normalised(raw: Mapping[ConfigKey, float], minimum: float, maximum: float) -> dict[ConfigKey, float]:
    """Scale weights > 0 to average 1, each within [minimum, maximum], where minimum <= 1 <= maximum."""
    ordered = sorted(raw.values())
    sums = list(accumulate(ordered, initial=0.0))

    def total(scale: float) -> float:
        """Return the sum of the clamped weights in logarithmic time. There may be ten thousand weights."""
        low, high = bisect_left(ordered, minimum / scale), bisect_right(ordered, maximum / scale)
        return minimum * low + scale * (sums[high] - sums[low]) + maximum * (len(ordered) - high)

    low, high = 0.0, maximum / ordered[0]
    for _ in range(60):  # bisection: the sum grows with the scale
        scale = (low + high) / 2
        low, high = (scale, high) if total(scale) < len(ordered) else (low, scale)
    return {key: min(maximum, max(minimum, weight * high)) for key, weight in raw.items()}


class CurriculumIntegration(Controller):
    """Owns the curriculum weights."""

    name: ClassVar[str] = "CurriculumIntegration"
    row: ClassVar[type[CurriculumRow]] = CurriculumRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({CurriculumRebalanced})

    @handles(EvaluationCompleted)
    def evaluated(
        self, rows: Mapping[str, CurriculumRow], event: Event[EvaluationCompleted], states: States
    ) -> Step[CurriculumRow]:
        """Rebalance after a rating, at most once per cooldown, if the largest change reaches ``min_change``."""
        limits, row = self.settings.feedback.curriculum, rows.get(ALL)
        if event.data.purpose != "rating":
            return Step()
        if row is None:
            return Step({ALL: CurriculumRow(set_us=event.recorded_us)})
        if event.recorded_us - row.set_us < limits.rebalance_seconds * SECOND_US:
            return Step()
        feedback = {config.key: state_of(states, config.key) for config in self.settings.configs}
        weights = normalised(self._raw(feedback), limits.minimum, limits.maximum)
        change = max(abs(weight - feedback[key].curriculum_weight) for key, weight in weights.items())
        if change < limits.min_change:
            return Step()
        rebalanced = CurriculumRebalanced(weights=weights, reason=f"largest change {change:.2f}")
        return Step({ALL: CurriculumRow(set_us=event.recorded_us)}, (Emission(rebalanced),))

    def _raw(self, feedback: Mapping[ConfigKey, FeedbackState]) -> dict[ConfigKey, float]:
        requests = {
            key: state.games_played / self.settings.config(key).selfplay.games_per_request
            for key, state in feedback.items()
        }
        gains = [_gain(state) for state in feedback.values() if state.elo_velocity is not None]
        velocity = max(self.settings.feedback.curriculum.least_velocity, sum(gains) / max(1, len(gains)))
        usual = Usual(sum(requests.values()) / len(feedback), velocity)
        return {key: raw_weight(state, requests[key], usual) for key, state in feedback.items()}
