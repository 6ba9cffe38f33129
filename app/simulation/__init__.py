"""Closed-loop simulation: real controllers, a modelled cluster, virtual time (ADR-012)."""

from app.simulation.arms import ALL, ARMS, NONE, arm_settings, arms_of, daemons_of_arm
from app.simulation.comparing import ArmSummary, Interval, Task, plot, run_tasks, summarise
from app.simulation.scoreboard import RunResult, Scoreboard
from app.simulation.settings import BadPlant, PlantSettings, load_plant, simulated
from app.simulation.simulation import Simulation

__all__ = [
    "ALL",
    "ARMS",
    "NONE",
    "ArmSummary",
    "BadPlant",
    "Interval",
    "PlantSettings",
    "RunResult",
    "Scoreboard",
    "Simulation",
    "Task",
    "arm_settings",
    "arms_of",
    "daemons_of_arm",
    "load_plant",
    "plot",
    "run_tasks",
    "simulated",
    "summarise",
]
