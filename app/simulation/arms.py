"""Arms: choices of controllers to compare.

An arm replaces the controllers that it leaves out with their baselines, or omits those that the loop does not need.
"""

from collections.abc import Mapping
from dataclasses import replace

from app.backends import understood
from app.config import RunSettings
from app.controllers import FeedbackLoopController, ModelLifecycleCoordinator, SelfplayScheduler, TrainingTrigger
from app.controllers.fold import Hosted, own_name
from app.simulation.baselines import (
    EvaluateAlways,
    PromoteAlways,
    TrainAlways,
    UniformBesideTrigger,
    UniformScheduler,
)
from daemons.own_controllers import own_controllers
from daemons.registry import DAEMONS
from daemons.spec import DaemonSpec

ALL, NONE = "all", "none"

Arm = tuple[type[Hosted], ...]
"""A choice of controllers."""

CONTROLLERS: Arm = tuple(controller for spec in DAEMONS.values() for controller in spec.controllers)
"""All controllers of the running system, in the order of its daemons."""

BASELINES: Mapping[type[Hosted], type[Hosted]] = {
    FeedbackLoopController: EvaluateAlways,
    ModelLifecycleCoordinator: PromoteAlways,
    SelfplayScheduler: UniformScheduler,
    TrainingTrigger: TrainAlways,
}
"""Replacements for controllers that the loop needs; other controllers are omitted."""


def _without(*left_out: type[Hosted]) -> Arm:
    baselines = dict(BASELINES)
    if TrainingTrigger not in left_out:
        baselines[SelfplayScheduler] = UniformBesideTrigger
    kept = (baselines.get(one) if one in left_out else one for one in CONTROLLERS)
    return tuple(controller for controller in kept if controller is not None)


ARMS: Mapping[str, Arm] = {
    ALL: CONTROLLERS,
    NONE: _without(*CONTROLLERS),
    **{f"without {one.name}": _without(one) for one in CONTROLLERS},
}
"""The arms of built-in controllers."""


def arms_of(settings: RunSettings) -> Mapping[str, Arm]:
    """Return the arms of a run.

    They are those of ``ARMS``, with the user's own controllers added, and one arm without each own controller. The arm
    without controllers has none of the user's own either.
    """
    own = own_controllers([settings])
    arms = {name: arm if name == NONE else (*arm, *own) for name, arm in ARMS.items()}
    without = {f"without {one.name}": tuple(other for other in arms[ALL] if other is not one) for one in own}
    return arms | without


def arm_settings(settings: RunSettings, arm: Arm, seed: int) -> RunSettings:
    """Return the settings of an arm's run with a seed.

    Controllers of the user's own that are not in the arm are taken out, so that the built-in ones set the parameters
    that the user's would set. Parameters that a backend does not understand are taken out, too.
    """
    hosted = {one.name for one in arm}
    own = {name: table for name, table in settings.controllers.items() if name in hosted}
    return understood(settings.replace(seed=seed, controllers=own))


def daemons_of_arm(arm: Arm) -> Mapping[str, DaemonSpec]:
    """Return all daemons with an arm's controllers. A baseline runs in the daemon of the controller it replaces."""
    replaced = {baseline: one for one, baseline in BASELINES.items()}
    replaced[UniformBesideTrigger] = SelfplayScheduler

    def hosts(spec: DaemonSpec, one: type[Hosted]) -> bool:
        return spec.hosts_own if own_name(one) else replaced.get(one, one) in spec.controllers

    return {
        name: replace(spec, controllers=tuple(one for one in arm if hosts(spec, one))) for name, spec in DAEMONS.items()
    }
