"""Scenarios: troubles that an operator can make in a running loop, and what the loop is expected to do about them.

A trouble gets in the way an operator's mistake or a broken node would: as an event, or as an artifact in the store. No
daemon knows of scenarios.
"""

from collections.abc import Mapping

from app.scenarios.bad_data import BadData
from app.scenarios.dead_node import DeadNode
from app.scenarios.known import READS, Known, known_of
from app.scenarios.plan import Expected, NotReady, Plan, Pointless, Scenario, choose
from app.scenarios.regression import Regression
from app.scenarios.stall import Stall
from app.scenarios.watch import Seen, Watch

SCENARIOS: Mapping[str, Scenario] = {one.name: one for one in (Regression(), Stall(), BadData(), DeadNode())}

__all__ = [
    "READS",
    "SCENARIOS",
    "BadData",
    "DeadNode",
    "Expected",
    "Known",
    "NotReady",
    "Plan",
    "Pointless",
    "Regression",
    "Scenario",
    "Seen",
    "Stall",
    "Watch",
    "choose",
    "known_of",
]
