"""Bounds and cooldowns that hold for controllers' decisions in any history."""

from collections import defaultdict
from datetime import timedelta
from itertools import pairwise

from hypothesis import Phase, given, settings
from profiles import examples
from random_histories import CONFIGS, FEEDBACK, stories

from flyball.app.controllers import Lineage
from flyball.app.controllers.fair_queue import LARGEST_REQUEST
from flyball.app.events import (
    CurriculumRebalanced,
    EvaluationCompleted,
    ExplorationBoost,
    HyperparameterUpdated,
    QualityPenaltyApplied,
    SelfplayRequested,
    TrainingIntensityChanged,
    TrainingRequested,
)
from flyball.daemons.registry import DAEMONS

PPO_KEY, _ = (config.key for config in CONFIGS)

READS = frozenset().union(*(one.reads for spec in DAEMONS.values() for one in spec.controllers))
EXAMPLES = settings(max_examples=examples(100), phases=[Phase.explicit, Phase.reuse, Phase.generate])
"""Failures are not shrunk, because shrinking such long histories takes minutes."""

USUAL_GAMES = [config.selfplay.games_per_request for config in CONFIGS]
MOST = {"epochs": 8, "games_per_iteration": 4 * 512, "quality_threshold": 0.5}
"""The clamps towards which the gauntlet raises parameters from any values."""

LEAST_TEMPERATURE = 0.5
"""The clamp towards which the gauntlet lowers the base temperature."""

RATE = "learning_rate"
"""The parameter with an owner and a cooldown of its own."""

COOLDOWN_RATINGS = {HyperparameterUpdated: 5, RATE: 5}
"""Ratings after a change that allow the next one sooner."""

SHORTEST = FEEDBACK.stall.shortest_window_seconds / (FEEDBACK.stall.window_hours * 3600)
"""The shortest stall window, as a share of the longest. What follows the run's own time is shorter by it."""

COOLDOWN_SECONDS = {
    ExplorationBoost: 7200 * SHORTEST,
    HyperparameterUpdated: 3600,
    TrainingIntensityChanged: 60,
    CurriculumRebalanced: FEEDBACK.curriculum.rebalance_seconds * SHORTEST,
    RATE: 3600,
}


def boosts_are_within_1_and_the_cap(boost):
    assert 1 <= boost.multiplier <= 2.25


def the_rate_of_selfplay_is_lowered_below_03_and_lifted_at_04(penalty):
    assert 0 < penalty.rate_multiplier <= 1
    assert penalty.quality_score >= 0.4 if penalty.rate_multiplier == 1 else penalty.quality_score < 0.3


def curriculum_weights_are_clamped_and_average_1(curriculum):
    assert set(curriculum.weights) == {config.key for config in CONFIGS}
    assert all(0.2 <= weight <= 3 for weight in curriculum.weights.values())
    assert all(curriculum.weights[key] == min(curriculum.weights.values()) for key in curriculum.plateaued)
    assert abs(sum(curriculum.weights.values()) / len(CONFIGS) - 1) < 1e-6


def parameters_are_clamped(update):
    assert update.value != update.previous
    if update.parameter == "base_temperature":
        assert update.value >= LEAST_TEMPERATURE
    elif update.parameter == RATE:
        assert 1e-6 <= update.value <= 1e-3
    else:
        assert update.value <= MOST[update.parameter]


def selfplay_is_no_colder_than_the_clamp(request):
    assert request.temperature >= 0.5
    assert request.games in USUAL_GAMES or max(USUAL_GAMES) <= request.games <= LARGEST_REQUEST


def only_first_trainings_have_no_rows(request):
    assert bool(request.shards) == (request.base_model is not None)


BOUNDS = {
    ExplorationBoost: boosts_are_within_1_and_the_cap,
    QualityPenaltyApplied: the_rate_of_selfplay_is_lowered_below_03_and_lifted_at_04,
    CurriculumRebalanced: curriculum_weights_are_clamped_and_average_1,
    HyperparameterUpdated: parameters_are_clamped,
    SelfplayRequested: selfplay_is_no_colder_than_the_clamp,
    TrainingRequested: only_first_trainings_have_no_rows,
}


@EXAMPLES
@given(story=stories(READS, max_size=80))
def test_every_bound_and_cooldown_holds(story):
    """Check bounds and cooldowns in each history."""
    for event in story.concluded:
        if bound := BOUNDS.get(type(event.data)):
            bound(event.data)
    check_rows(story)
    check_cooldowns(story)


def check_rows(story):
    """Assert that trainings are on rows of the model that they begin with, by PPO also of the champion before it."""
    own, lineages, before = {event.id for event in story.concluded}, defaultdict(Lineage), defaultdict(set)
    for event in story.events:
        if event.id in own and isinstance(event.data, TrainingRequested):
            base = event.data.base_model
            assert {shard.model for shard in event.data.shards} <= {base, *before[event.subject, base]}
        lineages[event.subject] = lineages[event.subject].after(event)
        if event.subject == PPO_KEY:
            for earlier, later in pairwise(lineages[event.subject].champions):
                before[event.subject, later.model].add(earlier.model)


def check_cooldowns(story):
    """Assert that no knob is turned more often than its cooldown allows.

    There are exceptions: a divergence, rejections and a rollback change the learning rate at once.
    """
    by_id = {event.id: event for event in story.events}
    times, own = defaultdict(set), {event.id for event in story.concluded}
    for event in story.concluded:
        kind, cause = _knob(event), by_id[event.envelope.causationid]
        if kind in COOLDOWN_SECONDS and (kind != RATE or type(cause.data) is EvaluationCompleted):
            times[kind, event.subject].add(event.envelope.time)
    for (kind, key), turned in times.items():
        rated = [
            event.recordedtime
            for event in story.events
            if isinstance(event.data, EvaluationCompleted) and event.subject == key and event.data.purpose == "rating"
        ]
        others = [
            event.recordedtime
            for event in story.events
            if _knob(event) == kind and event.subject == key and event.id not in own
        ]
        for earlier, later in pairwise(sorted(turned)):
            by_hand = any(earlier <= time <= later for time in others)  # an operator's boost may be shorter
            ratings = sum(earlier <= time <= later for time in rated)
            soon = later - earlier < timedelta(seconds=COOLDOWN_SECONDS[kind])
            assert by_hand or not soon or ratings >= COOLDOWN_RATINGS.get(kind, len(rated) + 1), kind


def _knob(event):
    """Return the type of a decision, or ``RATE``."""
    return RATE if getattr(event.data, "parameter", None) == RATE else type(event.data)
