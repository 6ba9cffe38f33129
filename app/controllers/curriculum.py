"""CurriculumIntegration: worker time goes where it brings most.

The objective is the sum over all configurations of Elo gained per second of worker time, each times the importance that
its user gives it. So a configuration's weight is proportional to its importance times the gain that may be expected of
it: the slope of its ratings over the worker time spent on it, plus ``optimism`` standard errors, since a configuration
of which little is known has to be tried. One whose gain is unknown gets as much as the best. Poor data teaches little,
so quality is a factor. Weights average 1. Their lower bound is a floor, so that a configuration that begins to improve
is noticed.

A configuration is *plateaued* if boosts of exploration have not ended its stall, and its gain alone would bring it less
than half of an equal share. It then plays, trains and is rated at the floor, until its gain would bring it an equal
share.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from itertools import accumulate
from math import isclose
from statistics import fmean
from typing import ClassVar

from flyball.app.config.feedback import CurriculumSettings
from flyball.app.controllers.controller import Controller, Watched, setting
from flyball.app.controllers.state import FeedbackState, States, state_of
from flyball.app.core import SECOND_US, SECONDS_PER_HOUR, ConfigKey
from flyball.app.events import CurriculumRebalanced, Emission, EvaluationCompleted, Event, Payload, Row, Step, handles
from flyball.app.events.envelope import EPOCH

ALL = ""
"""Key of the only row, because weights concern all configurations together."""

VAIN_STALLS = 2
"""Consecutive stalls after which a configuration may be plateaued: the first one brought a boost, in vain."""

PLATEAUED_BELOW, WAKES_AT = 0.5, 0.999
"""Weights by gain alone below which a stalled configuration is plateaued, and from which on it no longer is.

The latter is below 1, because otherwise rounding could keep all configurations plateaued when their gains are equal.
"""

LEAST_WORTH = 1e-9
"""Least expected gain, Elo per second of worker time; above 0, so that weights can be scaled."""


class CurriculumRow(Row, frozen=True):
    """Time of the latest change of weights, or of the first rating."""

    set_us: int


def worth(state: FeedbackState, importance: float, optimism: float) -> float | None:
    """Return a configuration's expected gain, Elo per second of worker time, times its importance and quality factor.

    ``None``: the gain is unknown.
    """
    if state.elo_gain is None or state.elo_gain_stderr is None:
        return None
    gain = max(0.0, state.elo_gain) + optimism * state.elo_gain_stderr
    return max(LEAST_WORTH, importance * quality_factor(state) * gain)


def quality_factor(state: FeedbackState) -> float:
    """Return the factor on a configuration's gain: from 0.5, for data of quality 0, to 1, also where it is unknown."""
    return 1.0 if state.quality_score is None else 0.5 + 0.5 * state.quality_score


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


def plateaued(
    states: Mapping[ConfigKey, FeedbackState], raw: Mapping[ConfigKey, float], floor: float
) -> set[ConfigKey]:
    """Return the configurations that are plateaued, by their states and their weights ``raw`` before any bounds.

    Where the floor is an equal share, all weights are equal, so that no configuration is plateaued.
    """
    mean = sum(raw.values()) / len(raw)
    return {
        key
        for key, state in states.items()
        if floor < 1
        and state.stalls >= VAIN_STALLS
        and state.elo_gain is not None
        and raw[key] < mean * (WAKES_AT if state.plateaued else PLATEAUED_BELOW)
    }


class CurriculumIntegration(Controller):
    """Owns the curriculum weights, and which configurations are plateaued."""

    name: ClassVar[str] = "CurriculumIntegration"
    row: ClassVar[type[CurriculumRow]] = CurriculumRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({CurriculumRebalanced})

    @handles(EvaluationCompleted)
    def evaluated(
        self, rows: Mapping[str, CurriculumRow], event: Event[EvaluationCompleted], states: States
    ) -> Step[CurriculumRow]:
        """Rebalance after a rating, at most once per cooldown, if that changes enough."""
        limits, row = self.settings.feedback.curriculum, rows.get(ALL)
        if event.data.purpose != "rating":
            return Step()
        if row is None:
            return Step({ALL: CurriculumRow(set_us=event.recorded_us)})
        feedback = {config.key: state_of(states, config.key) for config in self.settings.configs}
        time_scale = min(state.time_scale for state in feedback.values())
        rest_seconds = limits.rebalance_seconds * time_scale
        if event.recorded_us - row.set_us < rest_seconds * SECOND_US:
            return Step()
        raw = self._raw(feedback)
        done = plateaued(feedback, raw, limits.minimum)
        weights = self._weights(raw, done)
        changes = {key: weight - feedback[key].curriculum_weight for key, weight in weights.items()}
        most = max(changes, key=lambda key: abs(changes[key]))
        before = {key for key, state in feedback.items() if state.plateaued}
        if abs(changes[most]) < limits.min_change and done == before:
            return Step()
        mean = fmean(raw.values())
        shares = {key: expected / mean for key, expected in raw.items()}
        change = {key: _change_text(feedback[key].curriculum_weight, weights[key]) for key in raw}
        why = {
            key: f"{self._gain_text(feedback[key], raw[key])}, {shares[key]:.2f} times the mean of "
            f"{mean * SECONDS_PER_HOUR:.0f}"
            for key in raw
        }
        news = [
            f"{key} is plateaued, weight {change[key]}: it stalled again after a boost of exploration, and {why[key]}, "
            f"less than {PLATEAUED_BELOW}; weights change at most once in {rest_seconds:.1f} s "
            f"{setting('feedback.curriculum.rebalance_seconds', limits.rebalance_seconds)}, less in a short window"
            for key in sorted(done - before)
        ]
        for key in sorted(before - done):  # a minimum of 1 ends all plateaus, whatever the gain
            passed = f", at least {WAKES_AT}" if shares[key] >= WAKES_AT else ""
            news.append(f"{key} is no longer plateaued, weight {change[key]}: {why[key]}{passed}")
        if abs(changes[most]) >= limits.min_change and most not in done ^ before:
            news.append(f"{most} {change[most]} because {why[most]}{_rule(weights, most, shares, limits)}")
        rebalanced = CurriculumRebalanced(weights=weights, plateaued=tuple(sorted(done)), reason="; ".join(news))
        return Step({ALL: CurriculumRow(set_us=event.recorded_us)}, (Emission(rebalanced),))

    def watches(self, rows: Mapping[str, CurriculumRow], states: States, key: str) -> Sequence[Watched]:
        """Return the weight that the gain would bring, and the due change. See ``Controller.watches``."""
        limits = self.settings.feedback.curriculum
        feedback = {config.key: state_of(states, config.key) for config in self.settings.configs}
        raw, shown = self._raw(feedback), ConfigKey(key)
        state = feedback[shown]
        due = self._weights(raw, plateaued(feedback, raw, limits.minimum))[shown] - state.curriculum_weight
        known, row = state.elo_gain is not None, rows.get(ALL)
        rests = timedelta(seconds=limits.rebalance_seconds * min(state.time_scale for state in feedback.values()))
        share = Watched(
            what="weight that its gain alone would bring",
            value=raw[shown] * len(raw) / sum(raw.values()) if known else None,
            threshold=WAKES_AT if state.plateaued else PLATEAUED_BELOW,
            acts="above" if state.plateaued else "below",
            effect="no longer plateaued" if state.plateaued else "plateaued",
            waits="" if state.plateaued else f"{state.stalls} of {VAIN_STALLS} stalls",
        )
        change = Watched(
            what="change of its weight that is due",
            value=abs(due),
            threshold=limits.min_change,
            acts="above",
            effect=f"weight {state.curriculum_weight:.2f} → {state.curriculum_weight + due:.2f}",
            setting="feedback.curriculum.min_change",
            waits="" if known else "its gain is not known yet",
            until=EPOCH + timedelta(microseconds=row.set_us) + rests if known and row else None,
        )
        return share, change

    def _weights(self, raw: Mapping[ConfigKey, float], done: Collection[ConfigKey]) -> dict[ConfigKey, float]:
        """Return the weights of all configurations, of which some are plateaued."""
        limits = self.settings.feedback.curriculum
        expected = {key: LEAST_WORTH if key in done else gain for key, gain in raw.items()}
        return normalised(expected, limits.minimum, limits.maximum)

    def _raw(self, feedback: Mapping[ConfigKey, FeedbackState]) -> dict[ConfigKey, float]:
        """Return each configuration's expected gain times its importance; where it is unknown, the greatest of all."""
        optimism = self.settings.feedback.curriculum.optimism
        known = {key: worth(state, self.settings.config(key).importance, optimism) for key, state in feedback.items()}
        best = max((gain for gain in known.values() if gain is not None), default=1.0)
        return {key: best if gain is None else gain for key, gain in known.items()}

    def _gain_text(self, state: FeedbackState, expected: float) -> str:
        """Describe a configuration's gain, and how it counts: see ``worth``."""
        counts = f"{expected * SECONDS_PER_HOUR:.0f}"
        if state.elo_gain is None or state.elo_gain_stderr is None:
            return f"its gain is not known yet and counts as much as the best, {counts} Elo per hour of a worker"
        gain, stderr = state.elo_gain * SECONDS_PER_HOUR, state.elo_gain_stderr * SECONDS_PER_HOUR
        sum_text = f"{max(0.0, gain):.0f} + {self.settings.feedback.curriculum.optimism:g} x {stderr:.0f}"
        factors = {"importance": self.settings.config(state.config_key).importance, "quality": quality_factor(state)}
        product = "".join(f" x {factor:.3g} ({name})" for name, factor in factors.items() if factor != 1)
        counted = f"({sum_text}){product}" if product else sum_text
        return f"it gains {gain:+.0f} ± {stderr:.0f} Elo per hour of a worker, which count as {counted} = {counts}"


def _change_text(before: float, after: float) -> str:
    """Return a change of a weight; a weight alone if it stays."""
    old, new = f"{before:.2f}", f"{after:.2f}"
    return new if old == new else f"{old} → {new}"


def _rule(
    weights: Mapping[ConfigKey, float], key: ConfigKey, shares: Mapping[ConfigKey, float], limits: CurriculumSettings
) -> str:
    """Name the setting that a weight rests on: the least change, or a bound if it is not its gain's share.

    The bound is its own, otherwise the one that takes or gives most, because the mean of all weights is 1.
    """
    bounds = {limits.minimum: "minimum", limits.maximum: "maximum"}
    bounded = [other for other, weight in weights.items() if weight in bounds]
    if not bounded or isclose(weights[key], shares[key], abs_tol=0.005):
        return f" {setting('feedback.curriculum.min_change', limits.min_change)}"
    held = key if key in bounded else max(bounded, key=lambda other: abs(weights[other] - shares[other]))
    whose = "weights have bounds" if held == key else f"{held} has the bound of a weight"
    return f", and {whose} {setting(f'feedback.curriculum.{bounds[weights[held]]}', weights[held])}"
