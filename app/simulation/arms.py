"""Arms: choices of controllers to compare.

An arm replaces the controllers that it leaves out with their baselines, or omits those that the loop does not need.
"""

from collections.abc import Mapping
from dataclasses import replace

from flyball.app.backends import understood
from flyball.app.config import RunSettings
from flyball.app.controllers import (
    FeedbackLoopController,
    ModelLifecycleCoordinator,
    SelfplayScheduler,
    TrainingTrigger,
)
from flyball.app.controllers.fold import Hosted, own_name
from flyball.app.simulation.baselines import (
    EvaluateAlways,
    PromoteAlways,
    TrainAlways,
    UniformBesideTrigger,
    UniformScheduler,
)
from flyball.daemons.own_controllers import own_controllers
from flyball.daemons.registry import DAEMONS
from flyball.daemons.spec import DaemonSpec

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
    replaced = (baselines.get(kind) if kind in left_out else kind for kind in CONTROLLERS)
    return tuple(controller for controller in replaced if controller is not None)


ARMS: Mapping[str, Arm] = {
    ALL: CONTROLLERS,
    NONE: _without(*CONTROLLERS),
    **{f"without {controller.name}": _without(controller) for controller in CONTROLLERS},
}
"""The arms of built-in controllers."""


def arms_of(settings: RunSettings) -> Mapping[str, Arm]:
    """Return the arms of a run.

    They are those of ``ARMS``, with user-defined controllers added, and one arm without each of them. The arm
    without controllers has none of these either.
    """
    own = own_controllers([settings])
    arms = {name: arm if name == NONE else (*arm, *own) for name, arm in ARMS.items()}
    without = {f"without {removed.name}": tuple(kind for kind in arms[ALL] if kind is not removed) for removed in own}
    return arms | without


def arm_settings(settings: RunSettings, arm: Arm, seed: int) -> RunSettings:
    """Return the settings of an arm's run with a seed.

    User-defined controllers that are not in the arm are taken out, so that the built-in ones set the parameters
    that the user's would set. Parameters that a backend does not understand are taken out, too.
    """
    hosted = {controller.name for controller in arm}
    own = {name: table for name, table in settings.controllers.items() if name in hosted}
    return understood(settings.replace(seed=seed, controllers=own))


def daemons_of_arm(arm: Arm) -> Mapping[str, DaemonSpec]:
    """Return all daemons with an arm's controllers. A baseline runs in the daemon of the controller it replaces."""
    replaced = {baseline: controller for controller, baseline in BASELINES.items()}
    replaced[UniformBesideTrigger] = SelfplayScheduler

    def hosts(spec: DaemonSpec, controller: type[Hosted]) -> bool:
        return spec.hosts_own if own_name(controller) else replaced.get(controller, controller) in spec.controllers

    return {
        name: replace(spec, controllers=tuple(controller for controller in arm if hosts(spec, controller)))
        for name, spec in DAEMONS.items()
    }
