"""The loop closed around a modelled cluster on a virtual clock: do the controllers help? (ADR-012)"""

from app.simulation.arms import ALL, ARMS, NONE, Arm, UnknownArm, arm_of
from app.simulation.comparing import ArmSummary, Interval, Task, plot, run_task, run_tasks, summarise
from app.simulation.plant_settings import BadPlant, PlantSettings, load_plant
from app.simulation.results import RunResult
from app.simulation.scenario import many_configs, scale_settings, simulated
from app.simulation.scoreboard import Ledger
from app.simulation.simulation import Simulation

__all__ = [
    "ALL",
    "ARMS",
    "NONE",
    "Arm",
    "ArmSummary",
    "BadPlant",
    "Interval",
    "Ledger",
    "PlantSettings",
    "RunResult",
    "Simulation",
    "Task",
    "UnknownArm",
    "arm_of",
    "load_plant",
    "many_configs",
    "plot",
    "run_task",
    "run_tasks",
    "scale_settings",
    "simulated",
    "summarise",
]
