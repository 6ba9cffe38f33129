"""The histories of other properties contain every kind of decision."""

from collections import Counter

from hypothesis import Phase, given, seed, settings
from random_histories import stories

from flyball.app.events import Kind, RegressionDetected, SelfplayRequested
from flyball.daemons.registry import DAEMONS

CONTROLLERS = [controller for spec in DAEMONS.values() for controller in spec.controllers]
READS = frozenset().union(*(controller.reads for controller in CONTROLLERS))
DECISIONS = {payload for controller in CONTROLLERS for payload in controller.emits if payload.kind is Kind.DECISION}
SEEDS = 8
"""Each ends after ten histories, for later ones would mostly be variations of earlier ones."""
LEAST = 3


def test_every_decision_is_taken_in_some_of_them():
    taken = Counter[str]()
    for number in range(SEEDS):

        @seed(number)
        @settings(max_examples=10, database=None, phases=[Phase.generate])
        @given(story=stories(READS, max_size=300))
        def draw(story):
            taken.update({event.data.event_name for event in story.concluded})

        draw()
    expected = {payload.event_name for payload in DECISIONS | {SelfplayRequested, RegressionDetected}}
    assert {name for name in expected if taken[name] < LEAST} == set()
