"""Closed-loop simulation: real controllers, a modelled cluster, virtual time (ADR-020)."""

from flyball.app.simulation.arms import ALL, ARMS, NONE, arm_settings, arms_of, daemons_of_arm
from flyball.app.simulation.comparing import ArmSummary, Interval, SimulationTask, plot, run_tasks, summarise
from flyball.app.simulation.planning import ClusterPlan, Sizing, make_plan
from flyball.app.simulation.scoreboard import RunResult, Scoreboard
from flyball.app.simulation.settings import BadPlant, MachineSettings, PlantSettings, load_plant, planned, simulated
from flyball.app.simulation.simulation import Simulation
from flyball.app.simulation.workload import KindLoad

__all__ = [
    "ALL",
    "ARMS",
    "NONE",
    "ArmSummary",
    "BadPlant",
    "ClusterPlan",
    "Interval",
    "KindLoad",
    "MachineSettings",
    "PlantSettings",
    "RunResult",
    "Scoreboard",
    "Simulation",
    "SimulationTask",
    "Sizing",
    "arm_settings",
    "arms_of",
    "daemons_of_arm",
    "load_plant",
    "make_plan",
    "planned",
    "plot",
    "run_tasks",
    "simulated",
    "summarise",
]
