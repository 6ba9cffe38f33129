"""Scenarios: troubles that an operator can cause in a running loop.

Each scenario knows the steps that the loop is expected to take.

A trouble enters a run as an operator's mistake or a broken node would: as an event, or as an artifact in the store. No
daemon knows of scenarios.
"""

from collections.abc import Mapping

from flyball.app.scenarios import bad_data, dead_node, regression, stall
from flyball.app.scenarios.plan import (
    READS,
    Expected,
    NotReady,
    ObservedStep,
    Plan,
    Pointless,
    Scenario,
    Watch,
    choose,
    views_of,
)

SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        regression.SCENARIO,
        stall.SCENARIO,
        stall.PLATEAU,
        bad_data.SCENARIO,
        bad_data.WRONG_RULES,
        dead_node.SCENARIO,
    )
}

__all__ = [
    "READS",
    "SCENARIOS",
    "Expected",
    "NotReady",
    "ObservedStep",
    "Plan",
    "Pointless",
    "Watch",
    "choose",
    "views_of",
]
