"""Scenarios: troubles that an operator can make in a running loop, and what the loop is expected to do about them.

A trouble gets in the way an operator's mistake or a broken node would: as an event, or as an artifact in the store. No
daemon knows of scenarios.
"""

from collections.abc import Mapping

from app.runtime.scenarios.bad_data import BadData
from app.runtime.scenarios.choosing import NotReady, Pointless, choose
from app.runtime.scenarios.dead_node import DeadNode
from app.runtime.scenarios.known import READS, Known, known_of
from app.runtime.scenarios.plan import Expected, Plan, Scenario
from app.runtime.scenarios.regression import Regression
from app.runtime.scenarios.stall import Stall
from app.runtime.scenarios.watch import Seen, Watch

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
