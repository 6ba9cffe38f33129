"""The loop closed around a modelled cluster on a virtual clock: do the controllers help? (ADR-012)"""

from app.simulation.arms import ALL, ARMS, NONE, Arm, UnknownArm, arm_of
from app.simulation.comparing import ArmSummary, Interval, Task, plot, run_task, run_tasks, summarise
from app.simulation.scoreboard import RunResult, Scoreboard
from app.simulation.settings import BadPlant, PlantSettings, load_plant, simulated
from app.simulation.simulation import Simulation

__all__ = [
    "ALL",
    "ARMS",
    "NONE",
    "Arm",
    "ArmSummary",
    "BadPlant",
    "Interval",
    "PlantSettings",
    "RunResult",
    "Scoreboard",
    "Simulation",
    "Task",
    "UnknownArm",
    "arm_of",
    "load_plant",
    "plot",
    "run_task",
    "run_tasks",
    "simulated",
    "summarise",
]
