"""Arms: choices of controllers. Those that are left out are replaced by their neutral baselines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from app.controllers import (
    FeedbackLoopController,
    ModelLifecycleCoordinator,
    SelfplayScheduler,
    TrainingTrigger,
)
from app.controllers.fold import Factory, Hosted
from app.core import FlyballError
from app.simulation.baselines import (
    EvaluateAlways,
    PromoteAlways,
    TrainAlways,
    UniformBesideTrigger,
    UniformScheduler,
)
from daemons.registry import DAEMONS

ControllerClass = type[Hosted]
CONTROLLERS: tuple[ControllerClass, ...] = tuple(
    controller for spec in DAEMONS.values() for controller in spec.controllers
)
"""All controllers of the running system, in the order of its daemons."""

BASELINES: Mapping[ControllerClass, ControllerClass] = {
    FeedbackLoopController: EvaluateAlways,
    ModelLifecycleCoordinator: PromoteAlways,
    SelfplayScheduler: UniformScheduler,
    TrainingTrigger: TrainAlways,
}
"""Replacements of controllers that the loop needs; other controllers are omitted."""

ALL, NONE, WITHOUT = "all", "none", "without "


class UnknownArm(FlyballError):
    """No arm has this name."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A choice of controllers, named ``all``, ``none``, or ``without X``."""

    name: str
    controllers: tuple[ControllerClass, ...]

    @property
    def factories(self) -> tuple[Factory, ...]:
        """Factories of one Fold's reducers."""
        return cast("tuple[Factory, ...]", self.controllers)


def _without(*left_out: ControllerClass) -> tuple[ControllerClass, ...]:
    baselines = dict(BASELINES)
    if TrainingTrigger not in left_out:
        baselines[SelfplayScheduler] = UniformBesideTrigger
    kept = (baselines.get(one) if one in left_out else one for one in CONTROLLERS)
    return tuple(controller for controller in kept if controller is not None)


ARMS: Mapping[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm(ALL, _without()),
        Arm(NONE, _without(*CONTROLLERS)),
        *(Arm(f"{WITHOUT}{one.name}", _without(one)) for one in CONTROLLERS),
    )
}


def arm_of(name: str) -> Arm:
    """Find an arm by name. Raises ``UnknownArm``."""
    if name not in ARMS:
        raise UnknownArm(f"There is no arm {name!r}.", hint=f"There are: {', '.join(ARMS)}.")
    return ARMS[name]
