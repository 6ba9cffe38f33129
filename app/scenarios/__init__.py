"""Scenarios: troubles that an operator can cause in a running loop.

Each scenario knows the steps that the loop is expected to take.

A trouble enters a run as an operator's mistake or a broken node would: as an event, or as an artifact in the store. No
daemon knows of scenarios.
"""

from collections.abc import Mapping

from app.scenarios import bad_data, dead_node, regression, stall
from app.scenarios.plan import READS, Expected, Plan, Pointless, Scenario, Seen, Watch, choose, known_of

SCENARIOS: Mapping[str, Scenario] = {
    one.name: one for one in (regression.SCENARIO, stall.SCENARIO, bad_data.SCENARIO, dead_node.SCENARIO)
}

__all__ = [
    "READS",
    "SCENARIOS",
    "Expected",
    "Plan",
    "Pointless",
    "Seen",
    "Watch",
    "choose",
    "known_of",
]
